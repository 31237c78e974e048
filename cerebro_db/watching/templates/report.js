"use strict";
(async () => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const part = (name, place) => document.getElementById(`${name}-${place}`);

  // Plotly reads some HTML in labels: texts of users are none.
  const plain = (text) => String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
  const short = (text, most = 40) => (text.length > most ? text.slice(0, most - 1) + "…" : text);
  const shown = (value) => (value === null || value === undefined ? "–" : Number(value.toPrecision(5)).toString());

  async function library() {
    const packed = Uint8Array.from(atob(document.getElementById("library").textContent), (c) => c.charCodeAt(0));
    const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
    const script = document.createElement("script");
    script.textContent = await new Response(stream).text();
    document.head.append(script);
    document.getElementById("library").remove();
  }

  const options = { responsive: true, displaylogo: false, modeBarButtonsToRemove: ["lasso2d", "select2d"] };
  const layout = (more) => ({
    margin: { l: 70, r: 20, t: 30, b: 50 }, font: { family: "system-ui, sans-serif", size: 12 },
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", hovermode: "closest",
    modebar: { bgcolor: "rgba(0,0,0,0)", color: "#b6c0c9", activecolor: "#1f6feb" }, ...more,
  });
  const draw = (where, traces, more) => Plotly.newPlot(where, traces, layout(more), options);
  const unit = [[0, "#440154"], [0.25, "#3b528b"], [0.5, "#21918c"], [0.75, "#5ec962"], [1, "#fde725"]];
  const ranked = (share) => `hsl(${215 - 170 * share}, ${75 - 35 * share}%, ${45 + 25 * share}%)`;

  // -- learning curves: a trace for each tenth of the leaderboard, with gaps between configurations
  const TENTHS = 10;
  function lines(run, name) {
    const { epochs, values } = run.series[name];
    const traces = [];
    const size = Math.max(1, Math.ceil(values.length / TENTHS));
    for (let first = 0; first < values.length; first += size) {
      const x = [], y = [], text = [], place = [];
      for (let one = first; one < Math.min(first + size, values.length); one++) {
        values[one].forEach((value, column) => {
          if (value === null) return;
          x.push(epochs[column]); y.push(value); place.push(one);
          text.push(`rank ${run.ranks[one]}<br>${plain(run.labels[one]).replace(/ /g, "<br>")}<br>epoch ${epochs[column]}: <b>${shown(value)}</b>`);
        });
        x.push(null); y.push(null); text.push(""); place.push(one);
      }
      const last = Math.min(first + size, values.length);
      traces.push({
        type: "scatter", mode: values.length > 300 ? "lines" : "lines+markers", marker: { size: 4 }, x, y, text, customdata: place,
        hovertemplate: "%{text}<extra></extra>", connectgaps: false,
        name: first + 1 === last ? plain(short(run.labels[first])) : `${first + 1} to ${last} of the leaderboard`,
        line: { width: first === 0 ? 1.8 : 1, color: ranked(values.length > 1 ? first / values.length : 0) },
      });
    }
    traces.reverse();
    traces.push({ type: "scatter", mode: "lines+markers", x: [], y: [], hoverinfo: "skip", showlegend: false, line: { width: 4, color: "#d1242f" } });
    return traces;
  }
  function curves(run, place) {
    const where = part("curves", place), choice = part("series", place), log = part("log", place);
    if (!where) return;
    const names = Object.keys(run.series).sort((a, b) => (b === run.first) - (a === run.first) || a.localeCompare(b));
    names.forEach((name) => choice.add(new Option(name, name)));
    let kept = null;
    const highlight = (one) => {
      const { epochs, values } = run.series[choice.value];
      const line = one === null ? [] : values[one];
      const last = where.data.length - 1;
      Plotly.restyle(where, { x: [line.map((_, column) => epochs[column])], y: [line] }, [last]);
    };
    const redraw = () => draw(where, lines(run, choice.value), {
      xaxis: { title: { text: "epoch" }, ...(run.series[choice.value].epochs.length <= 20 ? { tickvals: run.series[choice.value].epochs } : {}) },
      yaxis: { title: { text: plain(choice.value) }, type: log.checked ? "log" : "linear" },
      legend: { traceorder: "reversed" },
    }).then(() => {
      where.on("plotly_hover", (event) => { if (kept === null && event.points[0].customdata !== undefined) highlight(event.points[0].customdata); });
      where.on("plotly_unhover", () => { if (kept === null) highlight(null); });
      where.on("plotly_click", (event) => { const one = event.points[0].customdata; kept = kept === one || one === undefined ? null : one; highlight(kept); });
    });
    choice.onchange = log.onchange = () => { kept = null; redraw(); };
    return redraw();
  }

  // -- hyperparameters
  const hasWebGL = () => { try { return !!document.createElement("canvas").getContext("webgl"); } catch { return false; } };
  function dimension(axis, chosen) {
    const values = chosen.map((one) => axis.values[one]);
    const known = values.filter((value) => value !== null);
    const label = plain(short(axis.name, 24));
    // A configuration without this hyperparameter lies below all others.
    if (axis.categories.length) {
      const places = axis.categories.map((_, one) => one);
      const lacking = values.some((value) => value === null);
      return {
        label, values: values.map((value) => (value === null ? -1 : value)), tickvals: lacking ? [-1, ...places] : places,
        ticktext: (lacking ? ["none", ...axis.categories] : axis.categories).map((text) => plain(short(text, 28))),
      };
    }
    const scaled = (value) => (axis.log ? Math.log10(value) : value);
    const low = Math.min(...known.map(scaled)), high = Math.max(...known.map(scaled));
    const none = low - Math.max((high - low) * 0.15, 1e-9);
    const all = values.map((value) => (value === null ? none : scaled(value)));
    const made = { label, values: all };
    if (axis.log || all.includes(none)) {
      const ticks = [...new Set(known)].sort((a, b) => a - b);
      const few = ticks.length <= 8 ? ticks : Array.from({ length: 6 }, (_, at) => { const t = low + (at / 5) * (high - low); return axis.log ? 10 ** t : t; });
      made.tickvals = few.map(scaled);
      made.ticktext = few.map((tick) => Number(tick.toPrecision(2)).toString());
      if (all.includes(none)) { made.tickvals.unshift(none); made.ticktext.unshift("none"); }
    }
    return made;
  }
  function parallel(run, place) {
    const where = part("parallel", place);
    if (!where) return;
    const results = run.first ? run.results[run.first] : null;
    const chosen = run.keys.map((_, one) => one).filter((one) => results && results[one] !== null);
    if (!chosen.length) { where.textContent = "No configuration has results yet."; return; }
    if (!hasWebGL()) { where.textContent = "Parallel coordinates need WebGL, which this browser does not offer."; return; }
    const colour = chosen.map((one) => results[one]);
    const best = colour[0], worst = colour[colour.length - 1];
    return draw(where, [{
      type: "parcoords",
      line: { color: colour, colorscale: unit, reversescale: worst > best, showscale: true, colorbar: { title: { text: plain(run.first) } } },
      dimensions: [
        ...run.axes.map((axis) => dimension(axis, chosen)),
        { label: plain(run.first), values: colour },
      ],
    }], { margin: { l: 90, r: 30, t: 60, b: 30 } });
  }
  function importance(run, place) {
    const where = part("importance", place);
    if (!where) return;
    const { names, values, trials, method } = run.importance;
    if (!names.length) { where.style.minHeight = "0"; where.textContent = "Importance needs four configurations with results that differ."; return; }
    return draw(where, [{
      type: "bar", orientation: "h", x: [...values].reverse(), y: names.map((name) => plain(short(name))).reverse(), marker: { color: "#1f6feb" },
      customdata: [...trials].reverse(), hovertemplate: "%{y}: %{x:.3f} of %{customdata} configurations<extra></extra>",
    }], { margin: { l: 140, r: 20, t: 40, b: 40 }, title: { text: `Importance for ${plain(run.importance.of)}, by ${method}` }, xaxis: { range: [0, 1] } });
  }

  // -- a registered model
  function reliability(run, place) {
    const where = part("reliability", place);
    if (!where) return;
    const bins = run.reliability;
    return draw(where, [
      { type: "scatter", mode: "lines", x: [0, 1], y: [0, 1], line: { dash: "dot", color: "#99a3ad" }, hoverinfo: "skip", showlegend: false },
      { type: "scatter", mode: "lines+markers", x: bins.map((bin) => bin[0]), y: bins.map((bin) => bin[1]), customdata: bins.map((bin) => bin[2]), showlegend: false,
        hovertemplate: "confidence %{x:.3f}: %{y:.3f} of %{customdata} rows are right<extra></extra>", line: { color: "#1f6feb" } },
    ], { xaxis: { title: { text: "confidence in the most probable class" }, range: [0, 1.01] }, yaxis: { title: { text: "share that is right" }, range: [0, 1.01] } });
  }
  function columns(run, place) {
    const where = part("columns", place);
    if (!where) return;
    const { names, values, deviations, measure } = run.columns;
    const back = (list) => [...list].reverse();
    where.style.minHeight = `${120 + 18 * names.length}px`;
    return draw(where, [{
      type: "bar", orientation: "h", x: back(values), y: back(names.map((name) => plain(short(name)))), marker: { color: "#1f6feb" },
      error_x: { type: "data", array: back(deviations), color: "#66727f", thickness: 1 }, hovertemplate: "%{y}: %{x:.4g}<extra></extra>",
    }], { margin: { l: 180, r: 20, t: 20, b: 50 }, yaxis: { type: "category" }, xaxis: { title: { text: `lost of ${plain(measure)}` } } });
  }

  // -- hops by worker
  function work(run, place) {
    const where = part("work", place);
    if (!where) return;
    const { workers, idle, scoring, bars, busy, seconds } = run.work;
    const names = workers.map((worker, one) => `worker ${worker}, ${(100 * idle[one]).toFixed(0)} % idle, ${(100 * scoring[one]).toFixed(0)} % scoring`);
    where.style.minHeight = `${120 + 34 * workers.length}px`;
    const more = { margin: { l: 150, r: 20, t: 30, b: 50 }, xaxis: { title: { text: "seconds since the first hop" }, range: [0, seconds] }, yaxis: { autorange: "reversed", type: "category" }, barmode: "overlay" };
    if (!bars) {
      const step = run.work.bin;
      return draw(where, [{
        type: "heatmap", z: busy, y: names, x0: step / 2, dx: step, zmin: 0, zmax: 1, ygap: 4, colorscale: [[0, "#f4f6f8"], [1, "#1f6feb"]],
        colorbar: { title: { text: "busy" } }, hovertemplate: "%{y}<br>%{x:.1f} s: %{z:.0%} busy<extra></extra>",
      }], { ...more, title: { text: `${run.work.hops.toLocaleString("en")} hops; each cell is ${shown(step)} s` } });
    }
    const place_of = new Map(run.keys.map((key, one) => [key, one]));
    return draw(where, [{
      type: "bar", orientation: "h", y: bars.map((bar) => names[bar[0]]), base: bars.map((bar) => bar[1]), x: bars.map((bar) => Math.max(bar[2] - bar[1], 0)),
      marker: { color: bars.map((bar) => `hsl(${((place_of.get(bar[3]) ?? 0) * 137.5) % 360}, 55%, 60%)`), line: { width: 0.5, color: "#fff" } },
      text: bars.map((bar) => `${plain(run.labels[place_of.get(bar[3])] ?? bar[3]).replace(/ /g, "<br>")}<br>epoch ${bar[4]}, partition ${bar[5]}<br>${shown(bar[2] - bar[1])} s`),
      textposition: "none", hovertemplate: "%{text}<extra></extra>",
    }], more);
  }

  // -- the winner
  const MOST_CLASSES = 200;
  function winner(run, place) {
    const where = part("winner", place);
    if (!where || !run.curves) return;
    // All places first: each is as wide as it stays.
    const add = () => { const made = document.createElement("div"); made.className = "chart"; where.append(made); return made; };
    const places = run.curves.map((target) => ({ target, confusion: target.classes.length <= MOST_CLASSES ? add() : null, roc: add() }));
    return Promise.all(places.flatMap(({ target, confusion, roc }) => {
      const done = [];
      const names = target.classes.map((name) => plain(short(name, 24)));
      const of = run.curves.length > 1 ? ` of ${plain(target.target)}` : "";
      if (confusion) {
        const z = names.map(() => names.map(() => 0));
        target.pairs.forEach(([actual, predicted, rows]) => { z[actual][predicted] = rows; });
        const places = names.map((_, one) => one);
        const axis = { tickvals: places.length <= 40 ? places : [], ticktext: names };
        done.push(draw(confusion, [{
          type: "heatmap", z, colorscale: "Blues", reversescale: true, showscale: false, texttemplate: names.length <= 20 ? "%{z}" : "",
          customdata: z.map((row, actual) => row.map((_, predicted) => `${names[actual]} taken for ${names[predicted]}`)),
          hovertemplate: "%{customdata}: %{z} rows<extra></extra>",
        }], { title: { text: `Confusion${of}` }, xaxis: { ...axis, title: { text: "predicted" } }, yaxis: { ...axis, title: { text: "actual" }, autorange: "reversed" }, margin: { l: 110, r: 20, t: 40, b: 70 } }));
      }
      const traces = target.curves.filter((curve) => curve.points.length).map((curve) => ({
        type: "scatter", mode: "lines", x: curve.points.map((point) => point[0]), y: curve.points.map((point) => point[1]), customdata: curve.points.map((point) => point[2]),
        name: `${curve.class === null ? "all classes" : names[curve.class]}, AUC ${curve.auc.toFixed(3)}`,
        hovertemplate: "threshold %{customdata}: %{y:.3f} of its rows, %{x:.3f} of the others<extra></extra>",
      }));
      traces.push({ type: "scatter", mode: "lines", x: [0, 1], y: [0, 1], line: { dash: "dot", color: "#99a3ad" }, hoverinfo: "skip", showlegend: false });
      done.push(draw(roc, traces, { title: { text: `ROC${of}` }, showlegend: true, xaxis: { title: { text: "false positive rate" }, range: [0, 1] }, yaxis: { title: { text: "true positive rate" }, range: [0, 1.01] }, legend: { x: 1, xanchor: "right", y: 0.02 } }));
      return done;
    }));
  }

  try {
    await library();
    for (const [place, run] of data.entries()) {
      for (const one of [curves, parallel, importance, work, winner, reliability, columns]) await one(run, place);
    }
    document.body.dataset.state = "drawn";
  } catch (error) {
    document.body.dataset.state = "failed";
    document.querySelectorAll(".chart").forEach((one) => { if (!one.firstChild) one.textContent = `Could not be drawn: ${error.message}`; });
  }
})();
