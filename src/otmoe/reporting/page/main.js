// The headline, the merging, and the order of all sections.

const POINTS = 300; // drawn of a curve

function headline() {
    const tiles = [];
    const tile = (value, ...words) =>
        tiles.push(
            el(
                "div",
                { class: "tile" },
                el("b", {}, value),
                words.map((w) => el("span", {}, w)),
            ),
        );
    if (merged) {
        const rows = sum(sites.map((site) => site.n_samples));
        const out = Object.keys(merged.left_out).length;
        tile(
            count(sites.length),
            sites.length === 1 ? "site" : "sites",
            ...(out ? [`${count(out)} left out`] : []),
        );
        tile(count(rows), "rows, which stayed at their sites");
        const sent = sum(sites.map(sentBy));
        const each = merged.refinement ? merged.refinement.rounds * merged.round_bytes : 0;
        tile(
            bytes(sent + each * sites.length),
            `sent in total, ${bytes(Math.round(sent / sites.length + each))} per site`,
            ...(each ? [`about ${bytes(each)} per site in refine rounds`] : []),
        );
    }
    const good = data.goodness;
    if (good)
        tile(
            `${num(100 * good.explained, 3)} %`,
            `of the ${good.what} explained`,
            `${num(good.better, 3)} nats per row better than the null model`,
        );
    if (model)
        tile(
            String(model.n_experts),
            `${model.family} expert${model.n_experts === 1 ? "" : "s"}`,
            plural(model.n_parameters, "parameter"),
        );
    if (merged) {
        const rounds = merged.refinement;
        tile(
            merged.method,
            `method, ${plural(merged.n_support, "support point")}`,
            ...(merged.candidates.length ? ["chosen by the server"] : []),
            ...(rounds ? [`then ${plural(rounds.rounds, "refine round")}`] : ["one round"]),
        );
        tile(num(merged.cost, 3), "R_c: nats lost by merging the sites' experts");
        if (merged.lost !== null)
            tile(
                num(merged.lost, 3),
                "expected nats lost per row, relative to the sites' own models",
                ...(rounds ? ["before the refine rounds"] : []),
            );
        if (rounds)
            tile(
                num(rounds.log_likelihood / rounds.n_samples, 5),
                "log-likelihood per row of the merged model",
                "from the sites' replies",
            );
        else
            tile(
                num(
                    sum(sites.map((s) => s.log_likelihood)) / sum(sites.map((s) => s.n_samples)),
                    5,
                ),
                "log-likelihood per row of the sites' own models",
            );
    }
    main.append(el("div", { class: "tiles", id: "headline" }, tiles));
    for (const note of data.notes) main.append(el("p", { class: "look" }, note));
}

function checkSection() {
    if (!merged) return;
    const box = section("checks", "Can it be trusted?");
    const words = { good: "ok", look: "check", bad: "problem" };
    box.append(
        el(
            "ul",
            { class: "checks" },
            data.checks.map((check) => {
                const one =
                    check.sites.length === 1
                        ? sites.findIndex((site) => site.site === check.sites[0])
                        : -1;
                return el(
                    "li",
                    {},
                    el("b", { class: check.level }, words[check.level]),
                    el(
                        "span",
                        {},
                        check.text,
                        one < 0
                            ? null
                            : el(
                                  "button",
                                  {
                                      type: "button",
                                      class: "screen small",
                                      style: "margin-left: .5rem",
                                      onclick: () => choose(one),
                                  },
                                  "Show",
                              ),
                    ),
                );
            }),
        ),
    );
    if (merged.warnings.length)
        box.append(
            el("h3", {}, "Warnings from merging"),
            el(
                "ul",
                {},
                merged.warnings.map((text) => el("li", {}, text)),
            ),
        );
}

function curve(all, name, from) {
    const step = Math.ceil(all.length / POINTS);
    const at = all.map((_, i) => i).filter((i) => i % step === 0 || i === all.length - 1);
    const values = at.map((i) => all[i]);
    const low = least(values),
        high = most(values);
    const log = low > 0 && high > 10 * low;
    const f = log ? Math.log10 : (v) => v;
    return (width) => {
        const height = 200,
            left = 84,
            bottom = 34;
        const x = scale(0, Math.max(all.length - 1, 1), left + 8, width - 10),
            y = scale(f(low), f(high), height - bottom - 8, 8);
        const picture = draw("svg", {
            viewBox: `0 0 ${width} ${height}`,
            role: "img",
            "aria-label": `${name}: from ${num(all[0], 6)} to ${num(all[all.length - 1], 6)} in ${plural(all.length - 1, "step")}`,
        });
        for (const v of log
            ? [...new Set([low, Math.sqrt(low * high), high])]
            : ticks(low, high, 4))
            picture.append(
                draw("path", { class: "axis", d: `M${left} ${y(f(v))}H${width}` }),
                draw(
                    "text",
                    { x: left - 6, y: y(f(v)) + 4, "text-anchor": "end", class: "quiet" },
                    num(v, log ? 3 : 6),
                ),
            );
        for (const v of ticks(0, all.length - 1, 6).filter(Number.isInteger))
            picture.append(
                draw(
                    "text",
                    { x: x(v), y: height - bottom + 12, "text-anchor": "middle", class: "quiet" },
                    String(v),
                ),
            );
        picture.append(
            draw(
                "text",
                { x: (left + width) / 2, y: height - 4, "text-anchor": "middle", class: "quiet" },
                from,
            ),
            draw("path", {
                d: `M${values.map((v, i) => `${x(at[i])} ${y(f(v))}`).join("L")}`,
                fill: "none",
                stroke: "var(--e0)",
                "stroke-width": 2,
            }),
            ...values.map((v, i) =>
                explained(
                    draw("circle", { cx: x(at[i]), cy: y(f(v)), r: 3.5, fill: "var(--e0)" }),
                    () => [`${from} ${at[i]}`, num(v, 8)],
                ),
            ),
        );
        return picture;
    };
}

// The candidates of the server; nothing if the method was given.
function candidates(box) {
    if (!merged.candidates.length) return;
    const part = el(
        "div",
        { id: "candidates" },
        el("h3", {}, "Candidates"),
        el(
            "p",
            { class: "quiet" },
            "Expected loss in nats per row relative to the sites' own models, at covariates of the sites. " +
                "If several are practically tied, the one with smaller errors when sites agree is chosen.",
        ),
    );
    box.append(part);
    const columns = [
        { head: "candidate", words: true, value: (c) => c.method },
        { head: "experts", value: (c) => c.n_experts },
        { head: "expected nats lost", value: (c) => c.lost, show: (c) => num(c.lost, 4) },
        {
            head: "choice",
            words: true,
            value: (c) => (c.method === merged.method ? "chosen" : ""),
        },
    ];
    table(part, columns, merged.candidates, {
        label: "Candidates",
        sort: 2,
        down: false,
    });
}

// The robust methods: dishonest sites cannot hide their effect on the loss at the median site.
function alternatives(box) {
    if (!merged.alternatives.length) return;
    const part = el(
        "div",
        { id: "alternatives" },
        el("h3", {}, "Comparison with robust methods"),
        el(
            "p",
            { class: "quiet" },
            "Expected loss in nats per row relative to the sites' own models. Fewer than half of the sites cannot move the " +
                "median far: if a robust method loses much less there, some sites are pulling this model towards them.",
        ),
    );
    box.append(part);
    const columns = [
        { head: "method", words: true, value: (a) => a.method },
        { head: "at the median site", value: (a) => a.typical, show: (a) => num(a.typical, 3) },
        { head: "weighted mean over sites", value: (a) => a.lost, show: (a) => num(a.lost, 3) },
        {
            head: "choice",
            words: true,
            value: (a) => (a === merged.alternatives[0] ? "this model" : ""),
        },
    ];
    table(part, columns, merged.alternatives, {
        label: "Comparison with robust methods",
        sort: 1,
        down: false,
    });
}

function howItEnded() {
    if (merged.converged) return "Merging finished";
    return merged.refinement ? "The refine rounds did not reach the maximum" : "Merging did not converge";
}

function convergenceSection() {
    if (!merged) return;
    const box = section("convergence", "How the model was merged");
    box.append(
        el(
            "p",
            {},
            `${howItEnded()}: ${merged.status}.`,
        ),
    );
    candidates(box);
    alternatives(box);
    const columns = el("div", { class: "columns" });
    box.append(columns);
    if (merged.trace.length > 1) {
        const name = merged.method === "kl" ? "Expected nats lost per row" : "R_c in nats";
        const part = el("div", {}, el("h3", {}, `${name} (non-increasing)`));
        columns.append(part);
        picture(part, curve(merged.trace, name, "iteration"));
    }
    const rounds = merged.refinement;
    if (rounds && rounds.trace.length) {
        const part = el(
            "div",
            {},
            el("h3", {}, "Penalised log-likelihood of all rows (non-decreasing)"),
        );
        columns.append(part);
        picture(part, curve(rounds.trace, "log-likelihood", "accepted step"));
        for (const missed of rounds.missing)
            box.append(
                el("p", { class: "look" }, `Round ${missed.round}: ${missed.site} did not reply.`),
            );
    }
    if (!columns.childElementCount)
        box.append(el("p", { class: "quiet" }, "This method does not iterate."));
}

document.getElementById("about").textContent = Object.entries(data.about)
    .map(([name, value]) => `${name}: ${value}`)
    .join(" · ");
const theme = document.getElementById("theme");
const isDark = () => {
    const set = document.documentElement.dataset.theme;
    return set ? set === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
};
const named = () => (theme.textContent = isDark() ? "Light" : "Dark");
theme.addEventListener("click", () => {
    document.documentElement.dataset.theme = isDark() ? "light" : "dark";
    named();
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", named);
named();

headline();
checkSection();
flowSection();
siteSection();
coefficientSection();
termSection();
matrixSection();
differSection();
gateSection();
convergenceSection();
sentSection();
versionSection();
main.append(
    el("footer", {}, `Made by otmoe ${data.otmoe}. This page makes no network requests.`),
);
redraw();
let waiting = 0;
addEventListener("resize", () => {
    clearTimeout(waiting);
    waiting = setTimeout(redraw, 100);
});
