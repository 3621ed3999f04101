// Plots of the gate: the effect of each feature on its probabilities, and regions for two features.

const SHOWN = 12; // features whose effect is shown initially
const CELLS = 44; // along each side of the regions
const LEAST = 14; // minimum width in pixels of a bar with its name below it

function softmax(logits) {
    const top = most(logits);
    const odds = logits.map((v) => Math.exp(v - top));
    const total = sum(odds);
    return odds.map((v) => v / total);
}
const gateLogits = (x) => model.gate.map((row) => sum(row.map((a, j) => a * (j ? x[j - 1] : 1))));
const gateProb = (x) => softmax(gateLogits(x));

// Return a feature's value in the units of its column, before it was centred and scaled.
function raw(j, value) {
    const [center, unit] = model.units ? model.units[j] : [0, 1];
    return center + unit * value;
}

// Return the range of a feature, and whether it is binary.
function range(j) {
    const c = merged && merged.covariates;
    if (!c) return { low: -2, high: 2, two: false };
    const two =
        c.low[j] >= 0 &&
        c.high[j] <= 1 &&
        c.sd[j] > 0 &&
        Math.abs(c.sd[j] ** 2 - c.mean[j] * (1 - c.mean[j])) < 1e-9;
    return two ? { low: 0, high: 1, two } : { low: c.low[j], high: c.high[j], two };
}
const middle = () =>
    merged && merged.covariates ? merged.covariates.mean : model.terms.slice(1).map(() => 0);

// Return a function that gives the probabilities if some features differ from their means, in a time
// that does not grow with the number of features.
function gateAround() {
    const center = middle(),
        logits = gateLogits(center);
    return (moved) =>
        softmax(
            logits.map(
                (v, k) =>
                    v +
                    sum(
                        Object.entries(moved).map(
                            ([j, value]) => model.gate[k][Number(j) + 1] * (value - center[j]),
                        ),
                    ),
            ),
        );
}

// Return what changes with the value of a feature: the feature itself, and the splines and products
// derived from it, which are interpolated between known values.
function moved(j, value) {
    const known = model.followers[j];
    if (!known) return { [j]: value };
    const { values, others } = known,
        last = values.length - 1;
    const place = ((value - values[0]) / (values[last] - values[0])) * last;
    const i = Math.min(Math.max(Math.floor(place), 0), last - 1);
    const between = ([other, v]) => [other, v[i] + (v[i + 1] - v[i]) * (place - i)];
    return { [j]: value, ...Object.fromEntries(Object.entries(others).map(between)) };
}

function along(j, n, around) {
    const { low, high, two } = range(j);
    const values = two
        ? [0, 1]
        : Array.from({ length: n }, (_, i) => low + ((high - low) * i) / (n - 1));
    return { values, two, prob: values.map((v) => around(moved(j, v))) };
}

// Return the average effect of a column over the support points, if the file has it.
const averaged = (first, number) =>
    ((merged && merged.gate) || []).find((e) => e.first === first && !!e.values === number);

function effectOf(j, around) {
    const known = averaged(j, true);
    const { values, two, prob } = known
        ? { values: known.values, two: known.values.length === 2, prob: known.prob }
        : along(j, 41, around);
    const names = [values[0], values[values.length - 1]].map((v) => num(raw(j, v), 3));
    return { j, title: model.terms[j + 1], values, bars: two, prob, names, size: sizeOf(prob) };
}

// Return the range of the probability that varies most.
function sizeOf(prob) {
    return most(
        prob[0].map((_, k) => most(prob.map((p) => p[k])) - least(prob.map((p) => p[k]))),
    );
}

// Return the effect of a category: its levels side by side, the reference first.
function effectOfCategory(category, around) {
    const names = [category.reference, ...category.levels];
    const known = averaged(category.first - 1, false);
    const at = (i) =>
        around(
            Object.fromEntries([
                ...category.levels.map((_, l) => [category.first - 1 + l, l + 1 === i ? 1 : 0]),
                ...Object.entries(category.others).map(([j, values]) => [j, values[i]]),
            ]),
        );
    const prob = known ? known.prob : names.map((_, i) => at(i));
    return { j: null, title: category.name, bars: true, prob, names, size: sizeOf(prob) };
}

function effectPicture(effect) {
    const [width, height, bottom] = [220, 120, 18];
    const { values, bars, prob, names, title } = effect;
    const last = prob.length - 1;
    const told = [
        values ? `${title} from ${names[0]} to ${names[1]}` : `${title}: ${names.join(", ")}`,
        ...prob[0].map(
            (_, k) =>
                `expert ${k}: ` +
                (values ? [prob[0], prob[last]] : prob)
                    .map((p) => share(p[k]))
                    .join(values ? " → " : ", "),
        ),
    ];
    const slot = width / prob.length;
    const picture = draw("svg", {
        viewBox: `0 0 ${width} ${height}`,
        role: "img",
        "aria-label": told.join(", "),
    });
    const x = values ? scale(values[0], values[last], 0, width) : null,
        y = scale(0, 1, height - bottom, 0);
    const under = prob.map(() => 0);
    for (let k = 0; k < model.n_experts; k++) {
        const over = under.map((u, i) => u + prob[i][k]);
        if (bars)
            prob.forEach((_, i) =>
                picture.append(
                    draw("rect", {
                        x: (i + 0.05) * slot,
                        y: y(over[i]),
                        width: 0.9 * slot,
                        height: y(under[i]) - y(over[i]),
                        fill: colour(k),
                    }),
                ),
            );
        else
            picture.append(
                draw("path", {
                    fill: colour(k),
                    d:
                        `M${values.map((v, i) => `${x(v).toFixed(1)} ${y(over[i]).toFixed(1)}`).join("L")}L` +
                        values
                            .map((v, i) => `${x(v).toFixed(1)} ${y(under[i]).toFixed(1)}`)
                            .reverse()
                            .join("L") +
                        "Z",
                }),
            );
        over.forEach((o, i) => (under[i] = o));
    }
    picture.append(
        ...(bars
            ? names.map((name, i) =>
                  draw(
                      "text",
                      { x: (i + 0.5) * slot, y: height - 4, class: "quiet", "text-anchor": "middle" },
                      slot < LEAST ? "" : clipped(name, Math.floor(slot / 7)),
                  ),
              )
            : names.map((name, i) =>
                  draw(
                      "text",
                      {
                          x: i * width,
                          y: height - 4,
                          class: "quiet",
                          "text-anchor": i ? "end" : "start",
                      },
                      name,
                  ),
              )),
    );
    return explained(picture, () => told);
}

function regions(width, first, second) {
    const side = Math.min(width, 560),
        left = 56,
        bottom = 34;
    const [a, b] = [range(first), range(second)];
    const picture = draw("svg", {
        viewBox: `0 0 ${side} ${side * 0.72}`,
        role: "img",
        "aria-label": `Most probable expert by ${model.terms[first + 1]} (horizontal) and ${model.terms[second + 1]} (vertical)`,
        style: `max-width: ${side}px`,
    });
    const height = side * 0.72 - bottom;
    const ends = [raw(first, a.low), raw(first, a.high), raw(second, b.low), raw(second, b.high)];
    const x = scale(ends[0], ends[1], left, side),
        y = scale(ends[2], ends[3], height, 0);
    const around = gateAround(),
        K = model.n_experts;
    const step = (r, i) => r.low + ((r.high - r.low) * (i + 0.5)) / CELLS;
    for (let i = 0; i < CELLS; i++)
        for (let l = 0; l < CELLS; l++) {
            const prob = around({ ...moved(first, step(a, i)), ...moved(second, step(b, l)) });
            const top = most(prob);
            picture.append(
                draw("rect", {
                    x: left + ((side - left) * i) / CELLS,
                    y: (height * (CELLS - 1 - l)) / CELLS,
                    width: (side - left) / CELLS,
                    height: height / CELLS,
                    "shape-rendering": "crispEdges",
                    fill: colour(prob.indexOf(top)),
                    opacity: (0.12 + 0.88 * ((top - 1 / K) / (1 - 1 / K))).toFixed(2),
                }),
            );
        }
    for (const v of ticks(ends[0], ends[1], 5))
        picture.append(
            draw(
                "text",
                { x: x(v), y: height + 14, "text-anchor": "middle", class: "quiet" },
                num(v, 3),
            ),
        );
    for (const v of ticks(ends[2], ends[3], 5))
        picture.append(
            draw(
                "text",
                { x: left - 6, y: y(v) + 4, "text-anchor": "end", class: "quiet" },
                num(v, 3),
            ),
        );
    picture.append(
        draw(
            "text",
            { x: (left + side) / 2, y: height + 30, "text-anchor": "middle" },
            clipped(model.terms[first + 1], 40),
        ),
        draw(
            "text",
            { transform: `translate(12 ${height / 2}) rotate(-90)`, "text-anchor": "middle" },
            clipped(model.terms[second + 1], Math.floor(height / 7.2)),
        ),
    );
    picture.addEventListener("mousemove", (event) => {
        const box = picture.getBoundingClientRect();
        const u = ((event.clientX - box.left) / box.width) * side,
            v = ((event.clientY - box.top) / box.width) * side;
        if (u < left || v > height) {
            tip.hidden = true;
            return;
        }
        const one = a.low + ((a.high - a.low) * (u - left)) / (side - left);
        const two = b.high - ((b.high - b.low) * v) / height;
        const prob = around({ ...moved(first, one), ...moved(second, two) });
        tell(
            [
                `${model.terms[first + 1]} ${num(raw(first, one), 3)}`,
                `${model.terms[second + 1]} ${num(raw(second, two), 3)}`,
                ...prob.map((p, k) => `expert ${k}: ${share(p)}`),
            ],
            event.clientX,
            event.clientY,
        );
    });
    picture.addEventListener("mouseleave", () => (tip.hidden = true));
    return picture;
}

function gateSection() {
    if (!model) return;
    const box = section("gate", "The gate");
    if (model.n_experts === 1) {
        box.append(el("p", {}, "The model has a single expert, so there is no gate to show."));
        return;
    }
    const features = model.gate_columns
        .filter((j) => j > 0 && j <= model.n_base)
        .map((j) => j - 1);
    const known = merged && merged.covariates;
    box.append(legend(model.gate.map((_, k) => `expert ${k}`)));
    if (!features.length) {
        box.append(
            el(
                "p",
                {},
                `The gate does not depend on any feature. Probabilities: ${gateProb(middle())
                    .map((p, k) => `expert ${k} ${share(p)}`)
                    .join(", ")}.`,
            ),
        );
        return;
    }
    box.append(
        el(
            "p",
            { class: "quiet" },
            known
                ? `The probability of each expert as one feature varies over the middle 95 % of its values, or a category over its levels, ${(merged.gate || []).length ? "averaged over the other features of the support points (partial dependence)" : "with the other features at their means"}. Largest effects first.`
                : "The distribution of the features is unknown, so each one varies from -2 to 2, with the others at 0.",
        ),
    );
    const around = gateAround();
    const single = features.map((j) => effectOf(j, around)).sort((a, b) => b.size - a.size);
    const categories = model.categories.filter((c) =>
        c.levels.every((_, l) => features.includes(c.first - 1 + l)),
    );
    const effects = [
        ...single.filter((e) => !categories.includes(categoryOf(e.title))),
        ...categories.map((category) => effectOfCategory(category, around)),
    ].sort((a, b) => b.size - a.size);
    const grid = el("div", { class: "multiples" });
    const cell = (effect) =>
        el("div", {}, el("h3", {}, effect.title), effectPicture(effect));
    grid.append(...effects.slice(0, SHOWN).map(cell));
    box.append(grid);
    if (effects.length > SHOWN) {
        const more = el(
            "button",
            {
                type: "button",
                class: "screen",
                onclick: () => {
                    grid.append(...effects.slice(SHOWN).map(cell));
                    more.remove();
                },
            },
            `Show all ${count(effects.length)} features`,
        );
        box.append(more);
    }
    if (features.length < 2) return;
    const wide = single.filter((e) => !e.bars);
    const pair = [...wide, ...single.filter((e) => e.bars)].slice(0, 2).map((e) => e.j);
    box.append(
        el("h3", {}, "Regions"),
        el(
            "p",
            { class: "quiet" },
            "The most probable expert at each pair of values, paler if the gate is less certain, with the other features at their means.",
        ),
    );
    const selects = pair.map((chosenFeature, at) => {
        const select = el(
            "select",
            {
                "aria-label": at ? "vertical axis" : "horizontal axis",
                onchange: () => {
                    pair[at] = Number(select.value);
                    show();
                },
            },
            features.map((j) =>
                el("option", { value: j, selected: j === chosenFeature }, model.terms[j + 1]),
            ),
        );
        return el("label", {}, at ? "vertical axis" : "horizontal axis", select);
    });
    box.append(el("div", { class: "controls" }, selects));
    const show = picture(box, (width) => regions(width, pair[0], pair[1]));
}
