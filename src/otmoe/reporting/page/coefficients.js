// Coefficients with their intervals, as a forest plot.

const LINES = 240; // dots shown initially
const HEAD = 18; // pixels of the name of a category above its levels

// Sort by size, largest first; levels of one category stay together, at the place of their largest.
function bySize(rows) {
    const key = (row) => categoryOf(row.term) ?? row;
    const largest = new Map();
    for (const row of rows)
        largest.set(key(row), Math.max(largest.get(key(row)) ?? 0, row.size));
    const place = new Map([...largest.keys()].map((one, i) => [one, i]));
    return rows
        .slice()
        .sort(
            (a, b) =>
                largest.get(key(b)) - largest.get(key(a)) ||
                place.get(key(a)) - place.get(key(b)) ||
                b.size - a.size,
        );
}

function pick(label, names, onchange) {
    const select = el(
        "select",
        { onchange: () => onchange(select.value) },
        Object.entries(names).map(([value, words]) => el("option", { value }, words)),
    );
    return el("label", {}, label, select);
}

function coefficientSection() {
    if (!model) return;
    const box = section("coefficients", "Coefficients");
    box.append(
        el(
            "p",
            {},
            model.has_intervals
                ? `Dots are estimates and lines are ${share(model.level)} intervals, based on ${model.intervals_from}. A hollow dot marks a coefficient that is not identified.`
                : `There are no intervals: ${model.no_intervals || "they were not requested."}`,
        ),
    );
    box.append(legend(Array.from({ length: model.n_experts }, (_, k) => `expert ${k}`)));
    const spread = merged && merged.covariates ? merged.covariates.sd : null;
    const blocks = { expert: "experts", gate: "gate" };
    const dispersion = model.estimates.find((e) => e.block === "variance");
    if (dispersion) blocks.variance = `${dispersion.term}s`;
    if (!model.estimates.some((e) => e.block === "gate")) delete blocks.gate;
    const labels = [
        ...new Set(model.estimates.filter((e) => e.label !== null).map((e) => e.label)),
    ];
    const state = {
        block: "expert",
        label: labels[0] ?? null,
        unit: "one",
        order: "model",
        intercept: null,
        all: false,
    };
    const set = (name) => (value) => {
        state[name] = value;
        state.all = false;
        show();
    };
    const tick = el("input", {
        type: "checkbox",
        onchange: () => {
            state.intercept = tick.checked;
            show();
        },
    });
    box.append(
        el(
            "div",
            { class: "controls" },
            pick("Show", blocks, (value) => {
                state.intercept = null;
                set("block")(value);
            }),
            labels.length > 1
                ? pick("class", Object.fromEntries(labels.map((l) => [l, l])), set("label"))
                : null,
            spread
                ? pick("per", { one: "unit of the feature", sd: "standard deviation" }, set("unit"))
                : null,
            pick("sorted by", { model: "position in the model", size: "size" }, set("order")),
            el("label", {}, tick, "show intercept"),
        ),
    );
    const note = el("p", { class: "quiet small" });
    const show = picture(box, forest);
    const more = el("button", {
        type: "button",
        class: "screen",
        onclick: () => {
            state.all = true;
            show();
        },
    });
    box.append(note, more);

    function unit(term) {
        const j = model.terms.indexOf(term) - 1;
        return state.unit === "sd" && state.block !== "variance" && j >= 0 ? spread[j] : 1;
    }
    function rows() {
        const wanted = model.estimates.filter(
            (e) =>
                !e.curve &&
                e.block === state.block &&
                (state.block !== "expert" || e.label === null || e.label === state.label),
        );
        const terms = new Map();
        for (const e of wanted) {
            const u = unit(e.term);
            const scaled = {
                ...e,
                estimate: e.estimate * u,
                low: e.low == null ? null : e.low * u,
                high: e.high == null ? null : e.high * u,
            };
            if (!terms.has(e.term)) terms.set(e.term, []);
            terms.get(e.term).push(scaled);
        }
        return [...terms].map(([term, list]) => ({
            term,
            list,
            size: most(list.map((e) => Math.abs(e.estimate))),
        }));
    }
    function forest(width) {
        let found = rows();
        const own = found.filter((row) => /^(.*: )?intercept$/.test(row.term)); // of each response
        const rest = found.filter((row) => !own.includes(row));
        const size = (some) => most(some.map((row) => row.size));
        if (state.intercept === null)
            // a distant intercept would leave no room for the others
            state.intercept = own.length > 0 && (!rest.length || size(own) <= 3 * size(rest));
        tick.checked = state.intercept;
        if (!state.intercept && rest.length) found = rest;
        if (state.order === "size") found = bySize(found);
        const all = found.length;
        if (!state.all) found = found.slice(0, Math.max(Math.floor(LINES / model.n_experts), 5));
        more.hidden = all === found.length;
        more.textContent = `Show all ${count(all)} terms`;
        note.textContent = [
            state.block === "gate" ? `Log-odds against expert ${model.n_experts - 1}.` : "",
            state.block === "expert" && state.label !== null && labels.length
                ? `For class ${state.label}.`
                : "",
            !state.intercept && own.length ? "Intercepts are not drawn; they are listed under Numbers." : "",
            model.estimates.some((e) => e.curve && e.block === state.block)
                ? "Splines are drawn under Curves and terms; their coefficients are listed under Numbers."
                : "",
        ]
            .filter(Boolean)
            .join(" ");

        const lane = model.n_experts > 6 ? 7 : 10;
        const left = Math.min(200, width * 0.3),
            right = 16;
        const begins = found.map((row, i) => {
            const category = categoryOf(row.term);
            return category && (!i || categoryOf(found[i - 1].term) !== category) ? category : null;
        });
        const tall = found.map((row, i) => row.list.length * lane + 8 + (begins[i] ? HEAD : 0));
        const height = sum(tall) + 26;
        const ends = found.flatMap((row) =>
            row.list.flatMap((e) => [e.estimate, e.low, e.high].filter((v) => v !== null)),
        );
        let low = Math.min(0, least(ends)),
            high = Math.max(0, most(ends));
        if (low === high) high = low + 1;
        const pad = 0.03 * (high - low);
        const x = scale(low - pad, high + pad, left, width - right);
        const picture = draw("svg", {
            viewBox: `0 0 ${width} ${height}`,
            role: "img",
            "aria-label":
                `Coefficients of the ${blocks[state.block]}: ${plural(found.length, "term")} from ` +
                `${num(low, 3)} to ${num(high, 3)}, listed under Numbers and in the matrix`,
        });
        for (const value of ticks(low, high, width < 500 ? 4 : 7))
            picture.append(
                draw("path", {
                    class: "axis",
                    d: `M${x(value)} 0V${height - 22}`,
                    "stroke-width": value === 0 ? 2 : 1,
                }),
                draw(
                    "text",
                    { x: x(value), y: height - 6, "text-anchor": "middle", class: "quiet" },
                    num(value, 3),
                ),
            );
        let y = 0;
        found.forEach((row, i) => {
            picture.append(
                draw("path", { class: "axis", d: `M0 ${y}H${width}`, opacity: 0.5 }),
            );
            const top = y + (begins[i] ? HEAD : 0);
            if (begins[i])
                picture.append(
                    draw(
                        "text",
                        { class: "category", x: 0, y: y + HEAD - 3 },
                        clipped(categoryName(begins[i]), Math.floor(width / 7.2)),
                    ),
                );
            picture.append(
                draw(
                    "text",
                    { x: left - 10, y: (top + y + tall[i]) / 2 + 4, "text-anchor": "end" },
                    clipped(levelName(row.term), Math.floor(left / 7.2)),
                ),
            );
            row.list.forEach((e, at) => {
                const middle = top + 4 + lane * (at + 0.5);
                const known = !model.has_intervals || e.low !== null;
                const mark = draw(
                    "g",
                    {},
                    e.low === null
                        ? null
                        : draw("path", {
                              d: `M${x(e.low)} ${middle}H${x(e.high)}`,
                              stroke: colour(e.expert),
                              "stroke-width": 2,
                          }),
                    draw("circle", {
                        cx: x(e.estimate),
                        cy: middle,
                        r: 3.4,
                        stroke: colour(e.expert),
                        fill: known ? colour(e.expert) : "var(--paper)",
                        "stroke-width": 1.5,
                    }),
                    draw("rect", {
                        x: left,
                        y: middle - lane / 2,
                        width: width - left - right,
                        height: lane,
                        fill: "transparent",
                    }),
                );
                picture.append(
                    explained(mark, () => [
                        `${row.term}, expert ${e.expert}` +
                            (e.label === null ? "" : `, class ${e.label}`),
                        num(e.estimate) +
                            (e.low === null
                                ? known
                                    ? ""
                                    : ", not identified"
                                : ` (${num(e.low)} to ${num(e.high)})`),
                    ]),
                );
            });
            y += tall[i];
        });
        return picture;
    }

    const numbers = el("details", {}, el("summary", {}, "Numbers"));
    box.append(numbers);
    const columns = [
        { head: "part", words: true, value: (e) => blocks[e.block] },
        { head: "term", words: true, value: (e) => e.term },
        { head: "expert", value: (e) => e.expert },
        labels.length ? { head: "class", words: true, value: (e) => e.label ?? "" } : null,
        { head: "estimate", value: (e) => e.estimate, show: (e) => num(e.estimate, 5) },
        ...(model.has_intervals ? ["se", "low", "high"] : []).map((key) => ({
            head: key === "se" ? "std. error" : key,
            value: (e) => e[key],
            show: (e) => num(e[key], 5),
        })),
    ].filter(Boolean);
    table(numbers, columns, model.estimates, {
        label: "All coefficients",
        sort: 0,
        down: false,
        search: (e) => `${blocks[e.block]} ${e.term}`,
    });
}
