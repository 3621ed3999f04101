// All coefficients as a table, to read, copy or download: a row per feature, a column per expert.

const MATRIX_ROWS = 200; // shown of each block

function matrixSection() {
    const found = data.matrix;
    if (!found) return;
    const box = section(
        "matrix",
        "Coefficient matrix",
        (model.has_intervals
            ? "One row per feature and one column per expert, with standard errors in parentheses."
            : "One row per feature and one column per expert.") +
            (model.estimates.some((e) => e.curve)
                ? " A spline has one row; its coefficients are in the CSV file."
                : ""),
    );
    const experts = Array.from({ length: found.experts }, (_, k) => `expert ${k}`);
    const row = (tag, cells) =>
        el(
            "tr",
            {},
            cells.map((cell, j) => {
                const scope = tag === "th" ? "col" : j ? null : "row";
                const kind = tag === "th" || !j ? "th" : "td";
                return el(kind, scope ? { scope } : {}, cell);
            }),
        );
    const body = [];
    if (found.share)
        body.push(row("td", ["share of rows", ...found.share.map((s) => `${num(100 * s, 3)} %`)]));
    for (const block of found.blocks) {
        const span = { scope: "colgroup", colspan: String(found.experts + 1) };
        body.push(el("tr", {}, el("th", span, block.heading)));
        block.terms.slice(0, MATRIX_ROWS).forEach((term, i) => {
            const left = found.experts - block.cells[i].length;
            const category = categoryOf(term);
            if (category && model.terms[category.first] === term)
                body.push(
                    el("tr", {}, el("th", { ...span, class: "category" }, categoryName(category))),
                );
            const line = row("td", [levelName(term), ...block.cells[i], ...Array(left).fill("")]);
            if (category) line.firstChild.className = "level";
            body.push(line);
        });
    }
    const most = Math.max(...found.blocks.map((block) => block.terms.length));
    if (most > MATRIX_ROWS) box.append(el("p", {}, `Only the first ${MATRIX_ROWS} rows of each block are shown; the CSV file has all.`));
    const sheet = el(
        "table",
        { "aria-label": "Coefficients: a row per feature, a column per expert" },
        el("thead", {}, row("th", ["", ...experts])),
        el("tbody", {}, body),
    );
    const quoted = (cell) => {
        const text = cell === null ? "" : String(cell);
        return /[",\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
    };
    const csv = found.csv.map((line) => line.map(quoted).join(",") + "\n").join("");
    const said = el("span", { role: "status", class: "quiet" }, "");
    const copy = () => {
        const picked = getSelection();
        picked.selectAllChildren(sheet);
        said.textContent = document.execCommand("copy") ? "copied" : "selected; press Ctrl+C to copy";
    };
    box.append(
        el(
            "p",
            { class: "screen" },
            el("button", { type: "button", class: "small", onclick: copy }, "Copy table"),
            " ",
            el(
                "a",
                {
                    href: `data:text/csv;charset=utf-8,${encodeURIComponent(csv)}`,
                    download: "coefficients.csv",
                },
                "Download CSV",
            ),
            " ",
            said,
        ),
        el(
            "div",
            { class: "scroll", tabindex: "0", role: "region", "aria-label": "Coefficient matrix" },
            sheet,
        ),
    );
}
