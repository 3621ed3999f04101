// The headline, how the merging went, and the order of everything.

const POINTS = 300; // of a curve

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
        tile(count(rows), "rows, which stayed where they are");
        const sent = sum(sites.map(sentBy));
        const each = merged.refinement ? merged.refinement.rounds * merged.round_bytes : 0;
        tile(
            bytes(sent + each * sites.length),
            `sent in all, ${bytes(Math.round(sent / sites.length + each))} a site`,
            ...(each ? [`of it about ${bytes(each)} in refine rounds`] : []),
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
        tile(num(merged.cost, 3), "R_c: nats between the sites' experts and the merged ones");
        if (merged.lost !== null)
            tile(
                num(merged.lost, 3),
                "expected nats per row lost to the sites' own models",
                ...(rounds ? ["before the refine rounds"] : []),
            );
        if (rounds)
            tile(
                num(rounds.log_likelihood / rounds.n_samples, 5),
                "log-likelihood per row of the merged model",
                "as the sites answered",
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
    const words = { good: "good", look: "look", bad: "bad" };
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
            el("h3", {}, "Warnings of the merging"),
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

// What the server chose from; nothing where the method was given.
function candidates(box) {
    if (!merged.candidates.length) return;
    const part = el(
        "div",
        { id: "candidates" },
        el("h3", {}, "What the server chose from"),
        el(
            "p",
            { class: "quiet" },
            "Nats per row that each is expected to lose to the sites' own models, at covariates of the sites. " +
                "One that is better by next to nothing is not preferred to the simpler one.",
        ),
    );
    box.append(part);
    const columns = [
        { head: "candidate", words: true, value: (c) => c.method },
        { head: "experts", value: (c) => c.n_experts },
        { head: "expected nats lost", value: (c) => c.lost, show: (c) => num(c.lost, 4) },
        {
            head: "taken",
            words: true,
            value: (c) => (c.method === merged.method ? "chosen" : ""),
        },
    ];
    table(part, columns, merged.candidates, {
        label: "What the server chose from",
        sort: 2,
        down: false,
    });
}

// What merging by votes would give: at the median site, liars cannot hide what they cost.
function alternatives(box) {
    if (!merged.alternatives.length) return;
    const part = el(
        "div",
        { id: "alternatives" },
        el("h3", {}, "If some sites may lie: merging by votes"),
        el(
            "p",
            { class: "quiet" },
            "Nats per row that each model is expected to lose to the sites' own. Fewer than half of the sites cannot move the " +
                "median far: where merging by votes loses less there than the model above, some sites pull it their way.",
        ),
    );
    box.append(part);
    const columns = [
        { head: "method", words: true, value: (a) => a.method },
        { head: "at the median site", value: (a) => a.typical, show: (a) => num(a.typical, 3) },
        { head: "mean over sites, by weight", value: (a) => a.lost, show: (a) => num(a.lost, 3) },
        {
            head: "taken",
            words: true,
            value: (a) => (a === merged.alternatives[0] ? "this model" : ""),
        },
    ];
    table(part, columns, merged.alternatives, {
        label: "Merging by votes",
        sort: 1,
        down: false,
    });
}

function howItEnded() {
    if (merged.converged) return "It ended well";
    return merged.refinement ? "The rounds did not reach the maximum" : "It did not converge";
}

function convergenceSection() {
    if (!merged) return;
    const box = section("convergence", "How the merging went");
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
        const part = el("div", {}, el("h3", {}, `${name}; it never rises`));
        columns.append(part);
        picture(part, curve(merged.trace, name, "iteration"));
    }
    const rounds = merged.refinement;
    if (rounds && rounds.trace.length) {
        const part = el(
            "div",
            {},
            el("h3", {}, "Penalised log-likelihood of all rows; it never falls"),
        );
        columns.append(part);
        picture(part, curve(rounds.trace, "log-likelihood", "accepted step"));
        for (const missed of rounds.missing)
            box.append(
                el("p", { class: "look" }, `Round ${missed.round}: ${missed.site} did not answer.`),
            );
    }
    if (!columns.childElementCount)
        box.append(el("p", { class: "quiet" }, "The method has no iterations."));
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
matrixSection();
differSection();
gateSection();
convergenceSection();
sentSection();
versionSection();
main.append(
    el("footer", {}, `Made by otmoe ${data.otmoe}. This page asks nothing of any network.`),
);
redraw();
let waiting = 0;
addEventListener("resize", () => {
    clearTimeout(waiting);
    waiting = setTimeout(redraw, 100);
});
