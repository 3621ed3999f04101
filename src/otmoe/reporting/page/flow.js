// The flow of mass from the experts of every site to the merged experts.

const MOST = 24; // sites drawn individually, besides those that stand out
const MOST_FLAGGED = 24;

// Return what is drawn on the left: sites with the mass that goes from each of their experts to each
// merged expert, as a share of all mass; many small sites are drawn as one.
function sources() {
    const covered = sites.map((_, i) => i).filter((i) => sites[i].mass);
    const total = sum(covered.map((i) => sites[i].weight));
    const order = covered.sort((a, b) => sites[b].weight - sites[a].weight);
    const flagged = order.filter((i) => sites[i].flagged.length).slice(0, MOST_FLAGGED);
    const drawn = new Set(order.length <= MOST + 2 ? order : [...order.slice(0, MOST), ...flagged]);
    if (chosen.site !== null && sites[chosen.site].mass) drawn.add(chosen.site);
    const found = order
        .filter((i) => drawn.has(i))
        .map((i) => ({
            site: i,
            label: sites[i].site,
            rows: sites[i].mass.map((row) => row.map((m) => (m * sites[i].weight) / total)),
        }));
    const rest = order.filter((i) => !drawn.has(i));
    if (rest.length) {
        const rows = merged.mass.map((_, k) =>
            merged.mass.map((_, j) =>
                j === k
                    ? sum(
                          rest.map(
                              (i) =>
                                  (sites[i].weight / total) *
                                  sum(sites[i].mass.map((row) => row[k])),
                          ),
                      )
                    : 0,
            ),
        );
        found.push({ site: null, label: `${count(rest.length)} other sites`, rows });
    }
    return found;
}

// Move labels apart, so that none hides another.
function spread(places, gap, low, high) {
    const found = places.slice();
    for (let i = 0; i < found.length; i++)
        found[i] = Math.max(found[i], i ? found[i - 1] + gap : low);
    for (let i = found.length - 1; i >= 0; i--)
        found[i] = Math.min(found[i], i < found.length - 1 ? found[i + 1] - gap : high);
    return found;
}

function siteWords(i) {
    const site = sites[i];
    return [
        site.site,
        `${count(site.n_samples)} rows, weight ${share(site.weight)}`,
        `cost ${num(site.cost, 3)} nats` +
            (site.disagreement === null ? "" : `, disagreement ${num(site.disagreement, 3)} nats per row`),
        ...(site.disagreement === null ? [] : [lessLikely(site.disagreement)]),
        ...(site.flagged.length ? [`stands out: ${site.flagged.join("; ")}`] : []),
    ];
}

function flow(width) {
    const items = sources();
    const K = merged.mass.length;
    const height = Math.max(300, items.length * 19, K * 15);
    const left = Math.min(190, width * 0.3),
        right = 112,
        bar = 12;
    const gapLeft = Math.min(6, (0.3 * height) / items.length),
        gapRight = K > 1 ? Math.min(22, (0.4 * height) / K) : 0;
    const unit = height - Math.max(gapLeft * (items.length - 1), gapRight * (K - 1)); // of all mass
    const picture = draw("svg", {
        viewBox: `0 0 ${width} ${height + 8}`,
        role: "group", // a picture would hide its buttons
        "aria-label":
            `Flow of mass from ${plural(sites.length, "site")} to ${plural(K, "merged expert")}: ` +
            merged.mass.map((mass, k) => `expert ${k} has ${share(mass)}`).join(", "),
    });
    const links = draw("g", {}),
        nodes = draw("g", {});
    picture.append(links, nodes);

    // 1) merged experts on the right
    const used = K * gapRight - gapRight + unit * sum(merged.mass);
    let y = (height - used) / 2 + 4;
    const arrive = merged.mass.map((mass, k) => {
        const top = y;
        nodes.append(
            explained(
                draw("rect", {
                    x: width - right - bar,
                    y: top,
                    width: bar,
                    height: Math.max(mass * unit, 1),
                    fill: colour(k),
                    tabindex: 0,
                    role: "img",
                    "aria-label": `expert ${k}: ${share(mass)} of the mass`,
                }),
                () => [`expert ${k}`, `${share(mass)} of the mass`],
            ),
        );
        y += mass * unit + gapRight;
        return top;
    });
    const named = arrive.map((top, k) => top + (merged.mass[k] * unit) / 2);
    spread(named, 13, 8, height).forEach((place, k) =>
        nodes.append(
            draw(
                "text",
                { x: width - right + 6, y: place + 4 },
                `expert ${k} `,
                draw("tspan", { class: "quiet" }, share(merged.mass[k])),
            ),
        ),
    );

    // 2) sites on the left, with their links
    const heights = items.map((item) => unit * sum(item.rows.map(sum)));
    y = (height - sum(heights) - gapLeft * (items.length - 1)) / 2 + 4;
    const middles = heights.map((size) => {
        const middle = y + size / 2;
        y += size + gapLeft;
        return middle;
    });
    const labels = spread(middles, 13, 8, height);
    const x0 = left + bar,
        x1 = width - right - bar,
        bend = (x1 - x0) / 2;
    items.forEach((item, m) => {
        const lit = chosen.site === null ? "" : item.site === chosen.site ? " lit" : " dim";
        const act = item.site === null ? {} : pressed(() => choose(item.site));
        let top = middles[m] - heights[m] / 2;
        const words = () =>
            item.site === null
                ? [item.label, `${share(heights[m] / unit)} of the mass`]
                : siteWords(item.site);
        const name =
            item.site === null
                ? {}
                : { tabindex: 0, role: "button", "data-site": item.site, "aria-label": words().join(", ") };
        const flagged = item.site !== null && sites[item.site].flagged.length;
        nodes.append(
            explained(
                draw(
                    "g",
                    { class: item.site === null ? "" : "site", ...name, ...act },
                    draw("rect", {
                        x: 0,
                        y: labels[m] - 7,
                        width: x0,
                        height: 14,
                        fill: "transparent",
                    }),
                    draw("path", {
                        class: "axis",
                        d: `M${left - 6} ${labels[m]}L${left - 1} ${middles[m]}`,
                    }),
                    draw("rect", {
                        class: "node",
                        x: left,
                        y: top,
                        width: bar,
                        height: Math.max(heights[m], 1),
                    }),
                    draw(
                        "text",
                        {
                            x: left - 9,
                            y: labels[m] + 4,
                            "text-anchor": "end",
                            class: [
                                item.site === null && "quiet",
                                flagged && "flag",
                                item.site !== null && item.site === chosen.site && "on",
                            ]
                                .filter(Boolean)
                                .join(" "),
                        },
                        clipped((flagged ? "! " : "") + item.label, Math.floor(left / 7.2)),
                    ),
                ),
                words,
            ),
        );
        item.rows.forEach((row, l) => {
            if (l)
                nodes.append(
                    draw("path", {
                        d: `M${left} ${top}h${bar}`,
                        stroke: "var(--paper)",
                        "stroke-width": 0.8,
                        "pointer-events": "none",
                    }),
                );
            row.forEach((mass, k) => {
                const thick = mass * unit;
                if (thick > 0.02) {
                    const size = Math.max(thick, lit === " lit" ? 1.6 : 0.4),
                        [a, b] = [top, arrive[k]];
                    links.append(
                        explained(
                            draw("path", {
                                class: `link${lit}`,
                                fill: colour(k),
                                "data-mass": mass,
                                ...act,
                                d:
                                    `M${x0} ${a}C${x0 + bend} ${a} ${x1 - bend} ${b} ${x1} ${b}v${size}` +
                                    `C${x1 - bend} ${b + size} ${x0 + bend} ${a + size} ${x0} ${a + size}Z`,
                            }),
                            () => [
                                item.site === null
                                    ? `${item.label} → merged expert ${k}`
                                    : `${item.label}, its expert ${l} → merged expert ${k}`,
                                `${share(mass)} of all mass` +
                                    (item.site === null
                                        ? ""
                                        : `, ${share(sites[item.site].mass[l][k])} of the site's`),
                                ...(item.site === null
                                    ? []
                                    : [`cost of the site ${num(sites[item.site].cost, 3)} nats`]),
                            ],
                        ),
                    );
                }
                top += thick;
                arrive[k] += thick;
            });
        });
    });
    return picture;
}

function flowSection() {
    if (!merged) return;
    const box = section(
        "flow",
        "How the sites' experts were merged",
        merged.mass
            ? "On the left are the sites, each divided into its own experts; on the right, the merged experts. The width " +
                  "of a band is the mass that goes from one to the other. Click on a site to focus the page on it."
            : "The experts were not merged, so there is no flow to show.",
    );
    if (merged.mass) chosen.watchers.push(picture(box, flow));
    const detail = el("div", {});
    box.append(detail);
    chosen.watchers.push(() =>
        detail.replaceChildren(...(chosen.site === null ? [] : [sitePanel(chosen.site)])),
    );
}
