// The sites: their table, what they sent, their software, and the panel of a selected site.

const PART_COLOURS = {
    about: 7,
    model: 0,
    features: 6,
    constant_features: 5,
    grams: 4,
    sketch: 2,
    support: 1,
};
const partColour = (part) => `var(--e${PART_COLOURS[part]})`;
const sentBy = (site) => sum(Object.values(site.sent));
const LOST = "expected nats lost per row, relative to the site's own model";
const INFLUENCE = "expected gain of the other sites, in nats per row, if it were left out";
const perRow = (site) => site.log_likelihood / site.n_samples;

function statusOf(site) {
    return [
        site.flagged.length ? el("span", { class: "bad" }, "stands out") : null,
        site.converged ? null : el("span", { class: "look" }, "not converged"),
        site.warnings.length
            ? el("span", { class: "look" }, plural(site.warnings.length, "warning"))
            : null,
    ].filter(Boolean);
}

// What a disagreement in nats per row means, for any sites and any model: a typical row of a site is
// exp(nats) times less likely under the other sites' models than under its own.
const DEGREES = [
    { below: 0.01, name: "negligible" },
    { below: 0.1, name: "slight" },
    { below: 1, name: "marked" },
    { below: Infinity, name: "different model" },
];
const degree = (nats) => DEGREES.find((one) => nats < one.below);

function lessLikely(nats) {
    const size =
        nats < Math.log(2)
            ? share(-Math.expm1(-nats))
            : nats < 7
              ? `${num(Math.exp(nats), 2)} times`
              : "more than a thousand times";
    return `a typical row is ${size} less likely under the other sites' models`;
}

// Two fits to rows of the same truth differ by half the parameters, over the rows of each.
function byChance(site) {
    if (!model || sites.length < 2) return "";
    const rows = sites.map((s) => s.n_samples).sort((a, b) => a - b);
    const other = rows[Math.floor(rows.length / 2)];
    const nats = (model.n_parameters / 2) * (1 / site.n_samples + 1 / other);
    return `; chance alone explains about ${num(nats, 2)}`;
}

function disagreementScale() {
    const words = DEGREES.map(({ below, name }, i) => {
        const from = i ? DEGREES[i - 1].below : null;
        if (from === null) return `Below ${below}: ${name} (at most ${share(-Math.expm1(-below))} less likely)`;
        return below === Infinity
            ? `${from} or more: ${name} (at least ${num(Math.exp(from), 2)} times less likely)`
            : `${from} to ${below}: ${name}`;
    });
    return el(
        "p",
        { class: "quiet small", id: "degrees" },
        `Disagreement measures how much less likely a typical row of the site is under the other sites' models. ${words.join("; ")}.`,
    );
}

function joined(parts, otherwise) {
    return parts.length
        ? el(
              "span",
              {},
              parts.flatMap((part, i) => (i ? [", ", part] : [part])),
          )
        : otherwise;
}

function siteSection() {
    if (!merged) return;
    const out = Object.entries(merged.left_out);
    const knowsLost = merged.lost !== null;
    const box = section(
        "sites",
        "Sites",
        "Weight: the site's weight in the merged model. Cost: how far its experts are from the merged experts that they were assigned to, in nats; R_c is the weighted mean. " +
            "Disagreement: how far its predictions are from those of the other sites, in nats per row, on an absolute scale. " +
            (knowsLost ? `Lost: ${LOST}. ` : "") +
            "Click on a site to focus the page on it.",
    );
    if (sites.some((site) => site.disagreement !== null)) box.append(disagreementScale());
    const index = new Map(sites.map((site, i) => [site, i]));
    const columns = [
        { head: "site", words: true, value: (s) => s.site },
        { head: "rows", value: (s) => s.n_samples, show: (s) => count(s.n_samples) },
        {
            head: "experts",
            optional: true,
            value: (s) => (s.mass ? s.mass.length : null),
            show: (s) => (s.mass ? String(s.mass.length) : "–"),
        },
        { head: "weight", value: (s) => s.weight, show: (s) => share(s.weight) },
        { head: "cost", optional: true, value: (s) => s.cost, show: (s) => num(s.cost, 3) },
        {
            head: "disagreement",
            value: (s) => s.disagreement,
            show: (s) =>
                s.disagreement === null
                    ? "–"
                    : el(
                          "span",
                          { title: lessLikely(s.disagreement) },
                          `${num(s.disagreement, 3)} `,
                          el("small", { class: "quiet" }, degree(s.disagreement).name),
                      ),
        },
        ...(knowsLost
            ? [{ head: "lost", title: LOST, value: (s) => s.lost, show: (s) => num(s.lost, 3) }]
            : []),
        ...(sites.some((s) => s.influence !== null)
            ? [
                  {
                      head: "influence",
                      title: INFLUENCE,
                      value: (s) => s.influence,
                      show: (s) => num(s.influence, 2),
                  },
              ]
            : []),
        { head: "log-lik. per row", optional: true, value: perRow, show: (s) => num(perRow(s), 4) },
        { head: "sent", optional: true, value: sentBy, show: (s) => bytes(sentBy(s)) },
        {
            head: "status",
            words: true,
            value: (s) =>
                (s.flagged.length ? 2 : 0) + (s.converged ? 0 : 1) + (s.warnings.length ? 0.5 : 0),
            show: (s) => joined(statusOf(s), "ok"),
        },
    ];
    const words = (s) =>
        `${s.site} ${s.flagged.length ? "stands out" : ""} ${s.converged ? "" : "not converged"}`;
    table(box, columns, sites, {
        label: "Sites",
        sort: 3,
        site: (s) => index.get(s),
        search: words,
    });
    if (out.length) {
        const part = el(
            "div",
            { id: "left-out" },
            el("h3", {}, `Left out: ${plural(out.length, "site")}`),
        );
        box.append(part);
        table(
            part,
            [
                { head: "site", words: true, value: (row) => row[0] },
                { head: "reason", words: true, value: (row) => row[1] },
            ],
            out,
            { label: "Sites that were left out", sort: 0, down: false },
        );
    }
}

function sitePanel(i) {
    const site = sites[i];
    const facts = [
        ["rows", count(site.n_samples)],
        ["weight", share(site.weight)],
        ["cost", `${num(site.cost, 3)} nats`],
        [
            "disagreement",
            site.disagreement === null
                ? "unknown"
                : `${num(site.disagreement, 3)} nats per row, ${degree(site.disagreement).name}: ` +
                  `${lessLikely(site.disagreement)}${byChance(site)}`,
        ],
        ...(site.lost === null ? [] : [["lost", `${num(site.lost, 3)}: ${LOST}`]]),
        ...(site.influence === null ? [] : [["influence", `${num(site.influence, 2)}: ${INFLUENCE}`]]),
        ["log-likelihood per row", `${num(perRow(site), 4)} (its own model)`],
        ["local fit", (site.converged ? "" : "not converged: ") + site.status],
        ...(site.coverage < 1 ? [["contributes", `at ${share(site.coverage)} of the support points`]] : []),
        ...site.flagged.map((why) => ["stands out", why]),
        ...site.warnings.map((text) => ["warning", text]),
        ["software", merged.versions[site.versions]],
    ];
    const flows =
        site.mass &&
        el(
            "div",
            {},
            el("h3", {}, "Share of its mass, from its experts (rows) to the merged experts (columns)"),
            el(
                "div",
                { class: "scroll" },
                el(
                    "table",
                    { "aria-label": `Mass of ${site.site}, from its experts (rows) to the merged experts (columns)` },
                    el(
                        "thead",
                        {},
                        el(
                            "tr",
                            {},
                            el("th", { class: "words" }, "its expert"),
                            site.mass[0].map((_, k) => el("th", {}, `expert ${k}`)),
                        ),
                    ),
                    el(
                        "tbody",
                        {},
                        site.mass.map((row, l) =>
                            el(
                                "tr",
                                {},
                                el("td", { class: "words" }, String(l)),
                                row.map((m) => el("td", {}, share(m))),
                            ),
                        ),
                    ),
                ),
            ),
        );
    const sent = el(
        "div",
        {},
        el("h3", {}, `Sent: ${bytes(sentBy(site))}`),
        partBar(site.sent),
        el(
            "dl",
            {},
            Object.entries(site.sent).flatMap(([part, size]) => [
                el("dt", {}, data.parts[part]),
                el("dd", {}, bytes(size)),
            ]),
        ),
    );
    return el(
        "div",
        { class: "panel", id: "panel" },
        el("h3", {}, site.site),
        el(
            "div",
            { class: "columns" },
            el(
                "dl",
                {},
                facts.flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, value)]),
            ),
            el("div", {}, flows, sent),
        ),
    );
}

function partBar(sent) {
    const total = sum(Object.values(sent));
    return el(
        "div",
        {
            class: "bar",
            role: "img",
            "aria-label": Object.entries(sent)
                .map(([part, size]) => `${data.parts[part]}: ${bytes(size)}`)
                .join(", "),
        },
        Object.entries(sent).map(([part, size]) =>
            explained(
                el("i", {
                    style: `width: ${(100 * size) / total}%; background: ${partColour(part)}`,
                }),
                () => [`${data.parts[part]}: ${bytes(size)}`],
            ),
        ),
    );
}

function sentSection() {
    if (!merged) return;
    const totals = {};
    for (const part of Object.keys(data.parts)) {
        const size = sum(sites.map((site) => site.sent[part] || 0));
        if (size) totals[part] = size;
    }
    const box = section(
        "sent",
        "What the sites sent",
        "Size of the messages by part, as otmoe writes them. No message contains a value of y" +
            (totals.support
                ? "; rows of x are included if a site chose to send them."
                : " or a row of x.") +
            " Support points obtained in other ways are not counted.",
    );
    if (merged.refinement && model) {
        const P = model.n_parameters,
            floats = 1 + P + (P * (P + 1)) / 2 + 2 * (model.terms.length - 1);
        box.append(
            el(
                "p",
                { class: "quiet" },
                `In each of ${plural(merged.refinement.rounds, "refine round")}, a site also replied with its ` +
                    `log-likelihood, score, information and moments of x: about ${count(floats)} numbers, which are not counted here.`,
            ),
        );
    }
    box.append(partBar(totals));
    box.append(
        el(
            "div",
            { class: "legend" },
            Object.entries(totals).map(([part, size]) => {
                const by = sites.filter((site) => site.sent[part]).length;
                return el(
                    "span",
                    {},
                    el("i", { style: `background: ${partColour(part)}` }),
                    `${data.parts[part]}: ${bytes(size)}${by < sites.length ? ` from ${plural(by, "site")}` : ""}`,
                );
            }),
        ),
    );
    const index = new Map(sites.map((site, i) => [site, i]));
    const short = {
        about: "metadata",
        model: "parameters",
        features: "features",
        constant_features: "constant features",
        grams: "Grams",
        sketch: "sketch",
        support: "rows of x",
    };
    table(
        box,
        [
            { head: "site", words: true, value: (s) => s.site },
            ...Object.keys(totals).map((part) => ({
                head: short[part],
                optional: part === "about" || part === "constant_features",
                value: (s) => s.sent[part] || 0,
                show: (s) => (s.sent[part] ? bytes(s.sent[part]) : "–"),
            })),
            { head: "total", value: sentBy, show: (s) => bytes(sentBy(s)) },
        ],
        sites,
        {
            label: "Bytes sent by each site, by part",
            sort: Object.keys(totals).length + 1,
            site: (s) => index.get(s),
            search: (s) => s.site,
        },
    );
}

function versionSection() {
    if (!merged) return;
    const box = section("versions", "Software at the sites");
    const rows = merged.versions.map((words, v) => ({
        words,
        names: sites.filter((site) => site.versions === v).map((site) => site.site),
    }));
    table(
        box,
        [
            { head: "versions", words: true, value: (row) => row.words },
            {
                head: "sites",
                value: (row) => row.names.length,
                show: (row) => count(row.names.length),
            },
            {
                head: "names",
                words: true,
                value: (row) =>
                    row.names.slice(0, 5).join(", ") +
                    (row.names.length > 5 ? ` and ${count(row.names.length - 5)} more` : ""),
            },
        ],
        rows,
        { label: "Software at the sites", sort: 1 },
    );
}
