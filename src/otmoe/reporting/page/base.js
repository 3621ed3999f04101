"use strict";
// Shared by all parts of the page. Text is only ever inserted as text nodes: names are not markup.

const data = JSON.parse(document.getElementById("data").textContent);
const model = data.model;
const merged = data.aggregation;
const sites = merged ? merged.sites : [];
const main = document.querySelector("main");
const SVG = "http://www.w3.org/2000/svg";

function fill(node, attributes, children) {
    for (const [name, value] of Object.entries(attributes || {})) {
        if (value === null || value === undefined || value === false) continue;
        if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
        else node.setAttribute(name, value === true ? "" : value);
    }
    for (const child of children.flat()) if (child !== null) node.append(child);
    return node;
}
const el = (tag, attributes, ...children) =>
    fill(document.createElement(tag), attributes, children);
const draw = (tag, attributes, ...children) =>
    fill(document.createElementNS(SVG, tag), attributes, children);

function section(id, title, ...words) {
    const box = el(
        "section",
        { id, "aria-labelledby": `${id}-title` },
        el("h2", { id: `${id}-title` }, title),
        words.map((text) => el("p", { class: "quiet" }, text)),
    );
    main.append(box);
    return box;
}

// -- numbers ---------------------------------------------------------------------------------------

function num(value, digits = 4) {
    if (value === null || value === undefined) return "–";
    const size = Math.abs(value);
    if (size !== 0 && (size < 1e-3 || size >= 1e6)) return value.toExponential(digits - 2);
    return String(Number(value.toPrecision(digits)));
}
const count = (value) => Math.round(value).toLocaleString("en");
function share(value) {
    if (value >= 0.9995) return "100\u00a0%";
    if (value > 0 && value < 1e-5) return "<0.001\u00a0%";
    return `${Number((100 * value).toPrecision(3))}\u00a0%`;
}
function bytes(value) {
    if (value < 1000) return `${value}\u00a0B`;
    if (value < 1e6) return `${(value / 1e3).toFixed(1)}\u00a0kB`;
    return `${(value / 1e6).toFixed(1)}\u00a0MB`;
}
const least = (values) => values.reduce((a, b) => Math.min(a, b), Infinity);
const most = (values) => values.reduce((a, b) => Math.max(a, b), -Infinity);
const sum = (values) => values.reduce((a, b) => a + b, 0);
const plural = (n, word) => `${count(n)} ${word}${n === 1 ? "" : "s"}`;
const colour = (k) =>
    (model ? model.n_experts : 0) <= 8 ? `var(--e${k})` : `hsl(${(k * 137.5) % 360} 55% 55%)`;

function ticks(low, high, n = 5) {
    if (!(high > low)) return [low];
    const rough = (high - low) / n;
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= rough);
    const found = [];
    for (let i = Math.ceil(low / step - 1e-9); i * step <= high + 1e-9 * step; i++)
        found.push(i * step);
    return found;
}
const scale = (low, high, from, to) => (value) =>
    high > low ? from + ((value - low) / (high - low)) * (to - from) : (from + to) / 2;

function clipped(text, most) {
    return text.length <= most ? text : `${text.slice(0, Math.max(most - 1, 1))}…`;
}

// -- features --------------------------------------------------------------------------------------

// The category and the level of a term that is one of several levels.
const levelOf = new Map(
    (model ? model.categories : []).flatMap((category) =>
        category.levels.map((level, i) => [model.terms[category.first + i], { category, level }]),
    ),
);
const categoryOf = (term) => (levelOf.has(term) ? levelOf.get(term).category : null);
const levelName = (term) => (levelOf.has(term) ? levelOf.get(term).level : term);
const categoryName = (category) => `${category.name} (reference: ${category.reference})`;

function legend(labels) {
    return el(
        "div",
        { class: "legend" },
        labels.map((label, k) =>
            el("span", {}, el("i", { style: `background: ${colour(k)}` }), label),
        ),
    );
}

// -- tooltips --------------------------------------------------------------------------------------

const tip = document.getElementById("tip");

function tell(lines, x, y) {
    tip.replaceChildren(...lines.map((line) => el("div", {}, line)));
    tip.hidden = false;
    const box = tip.getBoundingClientRect();
    tip.style.left = `${Math.max(4, Math.min(x + 12, innerWidth - box.width - 4))}px`;
    tip.style.top = `${y + 16 + box.height > innerHeight ? Math.max(4, y - box.height - 10) : y + 16}px`;
}

function explained(node, lines) {
    node.addEventListener("mousemove", (event) => tell(lines(), event.clientX, event.clientY));
    node.addEventListener("mouseleave", () => (tip.hidden = true));
    node.addEventListener("focus", () => {
        const box = node.getBoundingClientRect();
        tell(lines(), box.left + box.width / 2, box.bottom);
    });
    node.addEventListener("blur", () => (tip.hidden = true));
    return node;
}

// -- the selected site -----------------------------------------------------------------------------

const chosen = { site: null, watchers: [] };

function choose(index) {
    chosen.site = chosen.site === index ? null : index;
    tip.hidden = true;
    const bar = document.getElementById("chosen");
    bar.hidden = chosen.site === null;
    if (chosen.site !== null)
        bar.replaceChildren(
            "Showing",
            el("b", {}, sites[chosen.site].site),
            el(
                "button",
                {
                    type: "button",
                    onclick: () =>
                        document.getElementById("panel").scrollIntoView({ block: "center" }),
                },
                "Details",
            ),
            el("button", { type: "button", onclick: () => choose(chosen.site) }, "Show all sites"),
        );
    for (const watcher of chosen.watchers) watcher();
}

function pressed(action) {
    return {
        onclick: action,
        onkeydown: (event) => {
            if (event.key !== "Enter" && event.key !== " ") return;
            event.preventDefault();
            action();
        },
    };
}

// -- pictures that fit the width -------------------------------------------------------------------

const pictures = [];

function picture(box, render) {
    const place = el("div", {});
    box.append(place);
    const show = () => place.replaceChildren(render(Math.max(place.clientWidth || 700, 260)));
    pictures.push({ place, show, width: 0 });
    return show;
}

function redraw() {
    for (const one of pictures) {
        if (one.place.clientWidth === one.width) continue;
        one.width = one.place.clientWidth;
        one.show();
    }
}
