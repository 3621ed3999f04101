// How sites differ: blocks, one coefficient at all sites, and the sites that differ most.

const chance = (p) => (p === null ? "–" : p < 0.001 ? "<0.001" : p.toFixed(3));
const decimal = (value, digits) => (value === null ? "–" : value.toFixed(digits));

const OPTIONAL = new Set([3, 4, 7]); // columns of the blocks that are hidden on narrow screens

function spreadTable(between) {
    const line = (spread, name) =>
        el(
            "tr",
            {},
            el("th", { class: "words", scope: "row" }, name),
            [
                spread.tau === null ? "" : num(spread.tau, 3),
                spread.tau === null
                    ? ""
                    : `${num(spread.low, 3)} to ${spread.high === null ? "∞" : num(spread.high, 3)}`,
                decimal(spread.q, 1),
                num(spread.df),
                chance(spread.p_value),
                spread.q === null ? "–" : share(spread.i2),
                count(spread.n_parameters),
            ].map((cell, i) => el("td", { class: OPTIONAL.has(i + 1) ? "optional" : null }, cell)),
        );
    const interval = `${share(between.spread_level)} interval`;
    const heads = ["block", "τ", interval, "Q", "df", "p", "I²", "parameters"];
    const look = (i) => (i ? (OPTIONAL.has(i) ? "optional" : null) : "words");
    return el(
        "div",
        { class: "scroll" },
        el(
            "table",
            { id: "spreads", "aria-label": "Between-site standard deviations, by block" },
            el(
                "thead",
                {},
                el(
                    "tr",
                    {},
                    heads.map((head, i) => el("th", { scope: "col", class: look(i) }, head)),
                ),
            ),
            el(
                "tbody",
                {},
                between.spreads.map((spread) => line(spread, spread.block)),
                line(between.overall, "all blocks"),
            ),
        ),
    );
}

function forestPart(box, between) {
    const weight = (what) => (what.se > 0 ? what.tau / what.se : 0);
    const highest = most(between.coefficients.map(weight));
    const state = {
        j: between.coefficients.findIndex((what) => weight(what) === highest),
        order: "estimate",
    };
    const names = between.coefficients.map((what) => `${what.group}: ${what.name}`);
    const which = pick("Coefficient", names, (j) => {
        state.j = Number(j);
        show();
    });
    which.lastChild.value = String(state.j);
    const orders = { estimate: "estimate", rows: "number of rows", name: "name" };
    box.append(
        el("h3", {}, "One coefficient at all sites"),
        el(
            "div",
            { class: "controls" },
            which,
            pick("Sort sites by", orders, (value) => {
                state.order = value;
                show();
            }),
        ),
        el(
            "div",
            { class: "legend", "aria-hidden": "true" },
            el("span", {}, el("i", { class: "open" }), "site alone"),
            el("span", {}, el("i", { class: "full" }), "shrunk towards the mean"),
            el("span", {}, "◆ mean over sites"),
            el("span", {}, el("i", { class: "new" }), "prediction interval for a new site"),
        ),
    );
    const show = picture(box, (width) => forestPlot(between, state.j, state.order, width));
    box.append(
        el(
            "p",
            { class: "quiet small" },
            `Lines are ${share(between.level)} intervals; an arrow means that the interval extends beyond the plot. Larger marks are sites with more rows. ` +
                "If a site has no open mark, its rows alone do not identify the coefficient. " +
                "Intercepts refer to the mean of the features.",
        ),
    );
    chosen.watchers.push(show);
}

function drivingPart(box, between) {
    const total = sum(between.sites.map((site) => site.q));
    const index = new Map(sites.map((site, i) => [site.site, i]));
    const known = between.sites.some((site) => site.comparison);
    const compared = (name) => ({
        head: name,
        title: `mean log density of a held-out row under the ${name} model`,
        value: (s) => (s.comparison ? s.comparison[name] : null),
        show: (s) => {
            const value = decimal(s.comparison ? s.comparison[name] : null, 3);
            return s.comparison && s.comparison.best === name ? el("b", {}, value) : value;
        },
    });
    const part = el(
        "div",
        { id: "driving" },
        el("h3", {}, "Sites that differ most"),
        el(
            "p",
            { class: "quiet" },
            "Q: the site's contribution to the test of homogeneity; p: the probability of a larger value by chance." +
                (known
                    ? " Own, common, personal: mean log density of a held-out row under the site's own model, the common model, " +
                      "and the site's model shrunk towards the mean over sites; the best is in bold."
                    : ""),
        ),
    );
    box.append(part);
    table(
        part,
        [
            { head: "site", words: true, value: (s) => s.site },
            { head: "rows", optional: known, value: (s) => s.n_samples, show: (s) => count(s.n_samples) },
            { head: "Q", value: (s) => s.q, show: (s) => decimal(s.q, 1) },
            {
                head: "share of Q",
                optional: known,
                value: (s) => s.q,
                show: (s) => (total > 0 ? share(s.q / total) : "–"),
            },
            { head: "p", optional: known, value: (s) => s.p_value, show: (s) => chance(s.p_value) },
            ...(known
                ? [
                      ...["own", "common", "personal"].map(compared),
                      {
                          head: "best",
                          words: true,
                          optional: true,
                          value: (s) => (s.comparison ? s.comparison.best : ""),
                      },
                  ]
                : []),
        ],
        between.sites,
        {
            label: "Sites that differ most",
            sort: 2,
            search: (s) => s.site,
            site: merged ? (s) => index.get(s.site) ?? null : undefined,
        },
    );
}

function differSection() {
    const between = data.between;
    if (!between) return;
    const box = section("differ", "How sites differ");
    const all = between.overall;
    box.append(
        el(
            "p",
            {},
            `${plural(between.n_sites, "site")}, ${plural(between.n_samples, "row")}, design effect ${decimal(between.design_effect, 2)}. ` +
                (all.p_value === null
                    ? ""
                    : `Test of homogeneity: Q = ${decimal(all.q, 1)} on ${num(all.df)} degrees of freedom, p ${all.p_value < 0.001 ? "" : "= "}${chance(all.p_value)}, I² ${share(all.i2)}.`),
        ),
        ...between.warnings.map((text) => el("p", { class: "look" }, text)),
        el("h3", {}, "Between-site standard deviation τ, by block"),
        spreadTable(between),
        el("p", { class: "quiet small" }, between.scale),
    );
    if (between.sites.length) {
        forestPart(box, between);
        drivingPart(box, between);
    }
    const numbers = el("details", {}, el("summary", {}, "Numbers"));
    box.append(numbers);
    const columns = ["mean", "se", "tau", "low", "high"].map((key) => ({
        head: { mean: "mean", se: "std. error", tau: "τ", low: "new site: low", high: "new site: high" }[key],
        value: (what) => what[key],
        show: (what) => num(what[key], 5),
    }));
    table(
        numbers,
        [
            { head: "part", words: true, value: (what) => what.group },
            { head: "term", words: true, value: (what) => what.name },
            ...columns,
        ],
        between.coefficients,
        {
            label: "Means over sites and between-site standard deviations",
            sort: 0,
            down: false,
            search: (what) => `${what.group} ${what.name}`,
        },
    );
}
