// What a page looks like once it is laid out: called with a window, gives plain data.
function measure(w) {
  const d = w.document, root = d.documentElement;
  const out = {
    overflow: root.scrollWidth - root.clientWidth,
    spilled: [], resources: [], scripts: d.scripts.length, title: d.title, text: d.body.innerText,
    contrast: [], overlaps: [], outside: [], crossed: [], marks: [], lines: [],
  };
  for (const e of d.querySelectorAll("[src], [href], [data], [srcset], [action]"))
    for (const a of ["src", "href", "data", "srcset", "action"])
      if (e.hasAttribute(a) && !e.getAttribute(a).startsWith("#"))
        out.resources.push(e.getAttribute(a));

  const scrolls = e => e.closest(".drawing, .scroll, pre");
  for (const e of d.body.querySelectorAll("*")) {
    const r = e.getBoundingClientRect();
    if (r.width && r.right > root.clientWidth + 1 && !scrolls(e) && !e.closest("thead"))
      out.spilled.push(e.tagName + ": " + e.textContent.slice(0, 40));
  }

  // Contrast of every text with what is behind it, as WCAG has it.
  const parse = c => (c.match(/[\d.]+/g) || [0, 0, 0, 0]).map(Number);
  const channel = v => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
  const light = c => 0.2126 * channel(c[0]) + 0.7152 * channel(c[1]) + 0.0722 * channel(c[2]);
  const ratio = (a, b) => {
    const [x, y] = [light(a), light(b)].sort((p, q) => q - p);
    return (x + 0.05) / (y + 0.05);
  };
  const behind = e => {
    for (; e; e = e.parentElement) {
      const c = parse(w.getComputedStyle(e).backgroundColor);
      if (c.length < 4 || c[3] > 0) return c;
    }
    return [255, 255, 255];
  };
  const walk = d.createTreeWalker(d.body, w.NodeFilter.SHOW_TEXT);
  for (let n = walk.nextNode(); n; n = walk.nextNode()) {
    const e = n.parentElement;
    if (!n.data.trim() || !e.getClientRects().length || e.closest("title, desc")) continue;
    const style = w.getComputedStyle(e);
    let front = parse(style.color), back = behind(e);
    if (e.tagName === "text") {
      front = parse(style.fill);
      const rect = e.parentElement.querySelector(":scope > rect");
      if (rect && inside(e.getBBox(), rect.getBBox())) back = parse(w.getComputedStyle(rect).fill);
    }
    out.contrast.push([Math.round(ratio(front, back) * 100) / 100, n.data.trim().slice(0, 30)]);
  }

  // Drawings: no text on another or over the edge of its box, no line through a text.
  function inside(a, b) {
    return a.x >= b.x - 0.5 && a.y >= b.y - 0.5 &&
      a.x + a.width <= b.x + b.width + 0.5 && a.y + a.height <= b.y + b.height + 0.5;
  }
  const meet = (a, b) => Math.min(a.x + a.width, b.x + b.width) - Math.max(a.x, b.x) > 0.5 &&
    Math.min(a.y + a.height, b.y + b.height) - Math.max(a.y, b.y) > 2;
  for (const svg of d.querySelectorAll("svg")) {
    const texts = [...svg.querySelectorAll("text")].map(e => [e, e.getBBox()]);
    const rects = [...svg.querySelectorAll("g[data-site], g[data-cotangent], g[data-parameter], g[data-missing]")]
      .map(g => [g, g.querySelector("rect").getBBox()]);
    const view = svg.viewBox.baseVal;
    texts.forEach(([e, box], i) => {
      if (!inside(box, view)) out.outside.push("of the drawing: " + e.textContent);
      for (const [f, other] of texts.slice(0, i))
        if (meet(box, other)) out.overlaps.push(e.textContent + " | " + f.textContent);
      for (const [g, rect] of rects)
        if (meet(box, rect) && !inside(box, rect))
          out.outside.push("of its box: " + e.textContent);
    });
    rects.forEach(([g, box], i) => {
      for (const [h, other] of rects.slice(0, i))
        if (meet(box, other)) out.overlaps.push("boxes of " + g.textContent + " | " + h.textContent);
    });
    const free = texts.filter(([e, box]) => !rects.some(([g, rect]) => inside(box, rect)));
    for (const path of svg.querySelectorAll("path:not(.ob-head)")) {
      const dash = w.getComputedStyle(path).strokeDasharray;
      if (path.closest("svg").querySelector("[data-site]"))
        out.lines.push([path.classList.contains("ob-bad"), path.classList.contains("ob-saved"), dash]);
      const around = path.getBBox();
      const near = free.filter(([e, b]) =>
        b.x < around.x + around.width + 1 && around.x < b.x + b.width + 1 &&
        b.y < around.y + around.height + 1 && around.y < b.y + b.height + 1);
      for (let at = 0; near.length && at <= path.getTotalLength(); at += 2) {
        const p = path.getPointAtLength(at);
        for (const [e, b] of near)
          if (p.x > b.x && p.x < b.x + b.width && p.y > b.y + 2 && p.y < b.y + b.height - 2) {
            out.crossed.push(e.textContent);
            at = Infinity;
          }
      }
    }
  }
  for (const row of d.querySelectorAll("tbody tr:not(.note)"))
    out.marks.push([row.classList.contains("bad"), row.innerText.replace(/\s+/g, " ")]);
  return out;
}
