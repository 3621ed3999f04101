// One coefficient at all sites: before shrinkage (open) and after (filled), the mean, a new site.

const FOREST_SITES = 40; // sites drawn individually
const FOREST_ROW = 24; // pixels
const FOREST_ROOM = 0.8; // on either side, relative to the range of the intervals after shrinkage

const span = (value, error, wide) => [value - wide * error, value + wide * error];

// Return the sites drawn for coefficient j, from top to bottom. If there are many, those closest to
// the mean are only counted. The selected site is always drawn.
function forestRows(between, j, order) {
    const mean = between.coefficients[j].mean;
    const all = between.sites.map((site) => ({
        site,
        rows: site.n_samples,
        alone: site.error[j] === null ? null : site.estimate[j],
        ends: site.error[j] === null ? null : span(site.estimate[j], site.error[j], between.quantile),
        shrunk: site.shrunk[j],
        after: span(site.shrunk[j], site.shrunk_error[j], between.quantile),
    }));
    const far = all.slice().sort((a, b) => Math.abs(b.shrunk - mean) - Math.abs(a.shrunk - mean));
    const drawn = new Set(all.length <= FOREST_SITES + 1 ? far : far.slice(0, FOREST_SITES));
    const forward = all.find((row) => isChosen(row.site));
    if (forward) drawn.add(forward);
    const by = {
        estimate: (a, b) => a.shrunk - b.shrunk,
        rows: (a, b) => b.rows - a.rows,
        name: (a, b) => a.site.site.localeCompare(b.site.site, "en", { numeric: true }),
    };
    const found = all.filter((row) => drawn.has(row)).sort(by[order]);
    const left = all.length - found.length;
    if (left) {
        const at = order === "estimate" ? found.filter((row) => row.shrunk < mean).length : found.length;
        found.splice(at, 0, { left });
    }
    return found;
}

// Return the ends of the axis; a site with a wide interval does not compress the others.
function forestLimits(rows, what, mean) {
    const sitesOnly = rows.filter((row) => row.site);
    const inner = [what.low, what.high, ...mean, ...sitesOnly.flatMap((row) => row.after)];
    const low = least(inner),
        high = most(inner),
        room = FOREST_ROOM * (high - low) || 1;
    const outer = sitesOnly
        .flatMap((row) => row.ends ?? [])
        .map((value) => Math.min(Math.max(value, low - room), high + room));
    return [least([low, ...outer]), most([high, ...outer])];
}

function isChosen(site) {
    return chosen.site !== null && sites[chosen.site].site === site.site;
}

// Return functions that format estimates and intervals with as many decimals as the axis needs.
function forestNumbers(limits) {
    const digits = Math.min(Math.max(2 - Math.floor(Math.log10(limits[1] - limits[0])), 0), 6);
    const cell = (value) => {
        const text = value.toFixed(digits);
        return (Number(text) === 0 ? text.replace("-", "") : text).replace("-", "−");
    };
    return {
        cell,
        words: (value, ends) =>
            `${value === null ? "" : cell(value)} [${cell(ends[0])}, ${cell(ends[1])}]`,
    };
}

function forestPlot(between, j, order, width) {
    const what = between.coefficients[j];
    const rows = forestRows(between, j, order);
    const mean = span(what.mean, what.se, between.quantile);
    const limits = forestLimits(rows, what, mean);
    const wide = width >= 640;
    const left = wide ? 196 : Math.min(128, width * 0.34),
        right = wide ? 176 : 10,
        top = wide ? 20 : 4;
    const foot = top + rows.length * FOREST_ROW + 8;
    const height = foot + 2 * FOREST_ROW + 30;
    const x = scale(limits[0], limits[1], left + 10, width - right - 10);
    const { cell, words } = forestNumbers(limits);
    const ink = colour(what.expert);
    const name = `${what.group}: ${what.name}`;
    const svg = draw("svg", {
        viewBox: `0 0 ${width} ${height}`,
        role: "group",
        "aria-label":
            `Forest plot. ${name}: mean over sites ${words(what.mean, mean)}, ` +
            `prediction interval for a new site ${words(null, [what.low, what.high]).trim()}`,
    });
    const text = (at, y, string, attributes = {}) =>
        draw("text", { x: at, y: y + 4, ...attributes }, string);
    const put = (...nodes) => svg.append(...nodes.filter(Boolean));

    // 1) the axis
    for (const value of ticks(limits[0], limits[1], width < 500 ? 4 : 7))
        put(
            draw("path", { class: "axis", d: `M${x(value)} ${top}V${height - 24}` }),
            text(x(value), height - 12, num(value, 3), { "text-anchor": "middle", class: "quiet" }),
        );
    if (limits[0] < 0 && limits[1] > 0)
        put(draw("path", { class: "axis", d: `M${x(0)} ${top}V${height - 24}`, "stroke-width": 2 }));
    put(
        draw("path", {
            d: `M${x(what.mean)} ${top}V${foot + FOREST_ROW}`,
            stroke: ink,
            "stroke-dasharray": "4 3",
        }),
    );
    if (wide)
        put(
            text(left - 8, 6, "rows", { "text-anchor": "end", class: "quiet" }),
            text(width, 6, "after shrinkage", { "text-anchor": "end", class: "quiet" }),
        );

    // 2) the sites
    const largest = most(between.sites.map((site) => site.n_samples));
    const line = (ends, y, attributes) => {
        const [a, b] = ends.map((end) => Math.min(Math.max(end, limits[0]), limits[1]));
        const parts = [draw("path", { d: `M${x(a)} ${y}H${x(b)}`, ...attributes })];
        const arrow = (at, way) =>
            draw("path", { d: `M${at} ${y}l${-6 * way} -4v8z`, fill: attributes.stroke });
        if (ends[0] < limits[0]) parts.push(arrow(x(limits[0]) - 6, -1));
        if (ends[1] > limits[1]) parts.push(arrow(x(limits[1]) + 6, 1));
        return parts;
    };
    rows.forEach((row, i) => {
        const y = top + (i + 0.5) * FOREST_ROW;
        if (row.left) {
            const rest = `${plural(row.left, "site")} closer to the mean`;
            const at = (left + width - right) / 2;
            put(
                draw("rect", { x: at - 90, y: y - 9, width: 180, height: 18, fill: "var(--paper)" }),
                text(at, y, rest, { "text-anchor": "middle", class: "quiet", "font-style": "italic" }),
            );
            return;
        }
        const r = 2.2 + 3.2 * Math.sqrt(row.rows / largest);
        const at = sites.findIndex((site) => site.site === row.site.site);
        const told = [
            row.site.site,
            `${count(row.rows)} rows`,
            row.ends ? `site alone ${words(row.alone, row.ends)}` : "not identified from its rows alone",
            `after shrinkage ${words(row.shrunk, row.after)}`,
        ];
        const inside = row.alone !== null && row.alone >= limits[0] && row.alone <= limits[1];
        const mark = draw(
            "g",
            {
                class: at < 0 ? "effect" : "effect site",
                tabindex: 0,
                role: at < 0 ? "img" : "button",
                "aria-label": told.join(", "),
                "data-name": row.site.site,
                ...(at < 0 ? {} : pressed(() => choose(at))),
            },
            draw("rect", {
                x: 0,
                y: y - FOREST_ROW / 2,
                width,
                height: FOREST_ROW,
                fill: isChosen(row.site) ? "var(--mark)" : i % 2 ? "var(--card)" : "transparent",
                "fill-opacity": isChosen(row.site) ? 1 : 0.6,
            }),
            text(
                left - (wide ? 54 : 6),
                y,
                clipped(row.site.site, Math.floor((left - (wide ? 54 : 6)) / 7)),
                { "text-anchor": "end", class: isChosen(row.site) ? "on" : null },
            ),
            wide ? text(left - 8, y, count(row.rows), { "text-anchor": "end", class: "quiet" }) : null,
            ...(row.ends ? line(row.ends, y - 4.5, { stroke: "var(--quiet)", class: "alone" }) : []),
            inside
                ? draw("circle", {
                      class: "alone",
                      cx: x(row.alone),
                      cy: y - 4.5,
                      r,
                      fill: "var(--paper)",
                      stroke: "var(--quiet)",
                      "stroke-width": 1.3,
                  })
                : null,
            ...line(row.after, y + 4.5, { stroke: ink, "stroke-width": 2, class: "shrunk" }),
            draw("circle", { class: "shrunk", cx: x(row.shrunk), cy: y + 4.5, r, fill: ink }),
            wide
                ? text(width, y, words(row.shrunk, row.after), {
                      "text-anchor": "end",
                      class: "quiet numbers",
                  })
                : null,
        );
        put(explained(mark, () => told));
    });

    // 3) the mean and a new site
    const y = foot + FOREST_ROW / 2;
    const below = (place, label, ends, value, shape, lines) => {
        const mark = draw(
            "g",
            { tabindex: 0, role: "img", "aria-label": lines.join(", ") },
            draw("rect", {
                x: 0,
                y: place - FOREST_ROW / 2,
                width,
                height: FOREST_ROW,
                fill: "transparent",
            }),
            text(left - 6, place, label, { "text-anchor": "end" }),
            shape,
            wide
                ? text(width, place, words(value, ends), {
                      "text-anchor": "end",
                      class: "quiet numbers",
                  })
                : null,
        );
        put(explained(mark, () => lines));
    };
    put(draw("path", { d: `M0 ${foot - 3}H${width}`, stroke: "var(--quiet)" }));
    below(
        y,
        wide ? "mean over sites" : "mean",
        mean,
        what.mean,
        draw("path", {
            class: "diamond",
            d: `M${x(mean[0])} ${y}L${x(what.mean)} ${y - 7}L${x(mean[1])} ${y}L${x(what.mean)} ${y + 7}Z`,
            fill: ink,
        }),
        ["mean over sites", words(what.mean, mean)],
    );
    below(
        y + FOREST_ROW,
        wide ? `new site, τ = ${cell(what.tau)}` : "new site",
        [what.low, what.high],
        null,
        draw("rect", {
            class: "new-site",
            x: x(what.low),
            y: y + FOREST_ROW - 4.5,
            width: Math.max(x(what.high) - x(what.low), 1),
            height: 9,
            fill: ink,
            "fill-opacity": 0.45,
        }),
        [
            "a new site",
            `${share(between.level)} prediction interval ${cell(what.low)} to ${cell(what.high)}`,
            `between-site standard deviation ${cell(what.tau)}`,
        ],
    );
    return svg;
}
