// Terms with several coefficients: curves of splines with their bands, and joint tests.

function termSection() {
    const found = data.effects;
    if (!found || (!found.curves.length && !found.tests.length)) return;
    const box = section(
        "terms",
        "Curves and terms",
        "A term with several coefficients is shown as a whole.",
    );
    const where = (one) =>
        `${one.block === "gate" ? "gate, " : ""}expert ${one.expert}` +
        (one.label === null ? "" : `, ${one.label}`);
    if (found.curves.length) {
        box.append(
            el(
                "p",
                { class: "quiet" },
                `The effect of a column on the linear predictor of each expert, and on the log-odds of the gate, relative to the middle knot${model.has_intervals ? `, with ${share(model.level)} bands` : ""}. Interactions are left out. Ticks are knots; beyond the outer ones a curve is straight.`,
            ),
            legend(Array.from({ length: model.n_experts }, (_, k) => `expert ${k}`)),
        );
        const grid = el("div", { class: "multiples" });
        box.append(grid);
        for (const one of found.curves)
            for (const block of ["expert", "gate"]) {
                const mine = one.lines.filter((line) => line.block === block);
                for (const label of new Set(mine.map((line) => line.label))) {
                    const about = block === "gate" ? "gate" : label; // of a class or response
                    const title = about === null ? one.column : `${one.column}, ${about}`;
                    const lines = mine.filter((line) => line.label === label);
                    grid.append(el("div", {}, el("h3", {}, title), curvePicture(one, lines, title)));
                }
            }
    }
    if (found.tests.length) {
        const cells = (tag, texts) =>
            el("tr", {}, texts.map((text) => el(tag, tag === "th" ? { scope: "col" } : {}, text)));
        box.append(
            el("h3", {}, "Joint tests"),
            el("p", { class: "quiet" }, "Whether all coefficients of a term are zero (Wald)."),
            el(
                "div",
                { class: "scroll", tabindex: "0", role: "region", "aria-label": "Joint tests" },
                el(
                    "table",
                    { "aria-label": "Joint tests of terms" },
                    el("thead", {}, cells("th", ["term", "in", found.statistic, "df", "P"])),
                    el(
                        "tbody",
                        {},
                        found.tests.map((test) =>
                            cells("td", [
                                test.term,
                                where(test),
                                num(test.statistic),
                                String(test.df),
                                test.p < 0.001 ? "<0.001" : test.p.toFixed(3),
                            ]),
                        ),
                    ),
                ),
            ),
        );
    }

    function curvePicture(one, lines, title) {
        const width = 260,
            height = 150,
            left = 44,
            bottom = 18,
            last = one.x.length - 1;
        const known = lines
            .flatMap((line) => [...line.low, ...line.high, ...line.effect])
            .filter((value) => value !== null);
        const x = scale(one.x[0], one.x[last], left, width - 4);
        const y = scale(least(known), most(known), height - bottom, 6);
        const at = (line, i) =>
            line.low[i] === null
                ? num(line.effect[i], 3)
                : `${num(line.effect[i], 3)} [${num(line.low[i], 3)}, ${num(line.high[i], 3)}]`;
        const told = [
            `${title}: from ${num(one.x[0], 3)} to ${num(one.x[last], 3)}`,
            ...lines.map((line) => `${where(line)}: ${at(line, 0)} to ${at(line, last)}`),
        ];
        const node = draw("svg", {
            viewBox: `0 0 ${width} ${height}`,
            role: "img",
            tabindex: "0",
            "aria-label": `Effect of ${title} with bands. ${told.join("; ")}`,
        });
        const path = (values) =>
            values
                .map((value, i) => `${x(one.x[i]).toFixed(1)} ${y(value).toFixed(1)}`)
                .join("L");
        for (const line of lines) {
            if (!line.low.includes(null)) {
                const back = line.low
                    .map((value, i) => `${x(one.x[i]).toFixed(1)} ${y(value).toFixed(1)}`)
                    .reverse()
                    .join("L");
                node.append(
                    draw("path", {
                        class: "band",
                        d: `M${path(line.high)}L${back}Z`,
                        fill: colour(line.expert),
                        opacity: 0.2,
                    }),
                );
            }
            node.append(
                draw("path", {
                    class: "effect",
                    d: `M${path(line.effect)}`,
                    fill: "none",
                    stroke: colour(line.expert),
                    "stroke-width": 1.8,
                }),
            );
        }
        for (const knot of one.knots)
            node.append(
                draw("line", {
                    x1: x(knot),
                    x2: x(knot),
                    y1: height - bottom,
                    y2: height - bottom + 4,
                    stroke: "currentColor",
                }),
            );
        for (const value of ticks(least(known), most(known), 4))
            node.append(
                draw(
                    "text",
                    { x: left - 6, y: y(value) + 4, "text-anchor": "end", class: "quiet" },
                    num(value, 3),
                ),
            );
        for (const [value, anchor] of [
            [one.x[0], "start"],
            [one.x[last], "end"],
        ])
            node.append(
                draw(
                    "text",
                    { x: x(value), y: height - 2, "text-anchor": anchor, class: "quiet" },
                    num(value, 3),
                ),
            );
        return explained(node, () => told);
    }
}
