// Tables that can be sorted, searched and paged through.

const PAGE = 25;
const PRINTED = 50;

// columns: {head, title, value: row => number or text, show: row => text or node, words, optional}
// options: {label: name of the table, site: row => index of a site, sort, down, search}
function table(box, columns, rows, options = {}) {
    const state = {
        sort: options.sort ?? 0,
        down: options.down ?? true,
        page: 0,
        query: "",
        size: PAGE,
    };
    const heads = columns.map((column, j) =>
        el(
            "th",
            { class: classes(column), scope: "col", title: column.title },
            el("button", { type: "button", onclick: () => sort(j) }, column.head),
        ),
    );
    const body = el("tbody", {});
    const words = el("span", { role: "status" });
    const back = el("button", { type: "button", onclick: () => turn(-1) }, "Previous");
    const next = el("button", { type: "button", onclick: () => turn(1) }, "Next");
    const pager = el("div", { class: "pager" }, back, next, words);
    const paper = el("p", { class: "paper small" });
    const search = el("input", {
        type: "search",
        placeholder: "Search",
        "aria-label": "Search",
        oninput: () => {
            state.query = search.value.toLowerCase();
            state.page = 0;
            show();
        },
    });
    if (options.search && rows.length > 10) box.append(el("div", { class: "controls" }, search));
    box.append(
        el(
            "div",
            { class: "scroll" },
            el("table", { "aria-label": options.label }, el("thead", {}, el("tr", {}, heads)), body),
        ),
        pager,
        paper,
    );

    function classes(column) {
        return [column.words && "words", column.optional && "optional"].filter(Boolean).join(" ");
    }
    function sort(j) {
        state.down = state.sort === j ? !state.down : !columns[j].words;
        state.sort = j;
        state.page = 0;
        show();
    }
    function turn(step) {
        state.page += step;
        show();
    }
    function compare(a, b) {
        const value = columns[state.sort].value;
        const [x, y] = [value(a), value(b)];
        if (x === y) return 0;
        if (x === null) return 1; // unknown values come last in either direction
        if (y === null) return -1;
        return (x < y ? -1 : 1) * (state.down ? -1 : 1);
    }
    function found() {
        const only = options.site ? chosen.site : null;
        if (only !== null) return rows.filter((row) => options.site(row) === only);
        if (!state.query) return rows;
        return rows.filter((row) => options.search(row).toLowerCase().includes(state.query));
    }
    function show() {
        const list = found().slice().sort(compare);
        const pages = Math.max(1, Math.ceil(list.length / state.size));
        state.page = Math.min(Math.max(state.page, 0), pages - 1);
        const from = state.page * state.size;
        heads.forEach((head, j) =>
            j === state.sort
                ? head.setAttribute("aria-sort", state.down ? "descending" : "ascending")
                : head.removeAttribute("aria-sort"),
        );
        heads.forEach((head, j) => {
            const arrow = j === state.sort ? (state.down ? " ↓" : " ↑") : "";
            head.firstChild.textContent = columns[j].head + arrow;
        });
        body.replaceChildren(...list.slice(from, from + state.size).map(line));
        const many = list.length > state.size;
        pager.hidden = list.length === rows.length && !many;
        back.hidden = next.hidden = !many;
        back.disabled = state.page === 0;
        next.disabled = state.page === pages - 1;
        words.textContent = many
            ? `${count(from + 1)} to ${count(Math.min(from + state.size, list.length))} of ${count(list.length)}`
            : `${count(list.length)} of ${count(rows.length)}`;
        paper.textContent = many
            ? `The first ${count(state.size)} of ${count(list.length)} in this order.`
            : "";
    }
    function line(row) {
        const cells = columns.map((column) =>
            el(
                "td",
                { class: classes(column) },
                column.show ? column.show(row) : String(column.value(row)),
            ),
        );
        const site = options.site ? options.site(row) : null;
        if (site === null) return el("tr", {}, cells);
        return el(
            "tr",
            {
                class: chosen.site === site ? "row on" : "row",
                tabindex: 0,
                ...pressed(() => choose(site)),
            },
            cells,
        );
    }
    if (options.site) chosen.watchers.push(show);
    addEventListener("beforeprint", () => {
        state.size = PRINTED;
        show();
    });
    addEventListener("afterprint", () => {
        state.size = PAGE;
        show();
    });
    show();
}
