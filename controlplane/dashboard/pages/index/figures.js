"use strict";
// How figures, times and counts are written: as the command line has them. Pure functions.

const FEW_GAVE_UP = 10; // fewer clients that go before their answers say nothing, ...
const MAY_GIVE_UP = 0.05; // ... nor does a smaller share of them
const SHORT_OF = 0.99; // a share of SLOs met below this stands out
const fixed = (value, digits) =>
  value == null
    ? "–"
    : value.toLocaleString("en-GB", {
        minimumFractionDigits: digits,
        maximumFractionDigits: digits,
      });
const ms = value =>
  value == null
    ? "–"
    : value < 1
      ? value.toFixed(3)
      : value < 10
        ? value.toFixed(2)
        : fixed(value, 1);
const guess = d => (d.stale ? "?" : d.source === "predicted" ? "~" : "");
const half = v =>
  v.accuracy_low == null ? "–" : (50 * (v.accuracy_high - v.accuracy_low)).toFixed(2);
// As the command line has it: half up, 100 only where it is all, and 0 only where it is nothing.
const percent = value =>
  value == null
    ? "–"
    : value > 0 && value < 5e-5
      ? brief(100 * value) + " %"
      : (value < 1 ? Math.min(9999, Math.floor(1e4 * value + 0.5)) / 100 : 100 * value).toFixed(2) +
        " %";
const brief = value => (value == null ? "–" : String(Number(value.toPrecision(2))));
const count = value => (value == null ? "–" : Math.round(value).toLocaleString("en-GB"));
const usd = value =>
  value == null
    ? "–"
    : value === 0
      ? "0"
      : value.toFixed(Math.max(2, 1 - Math.floor(Math.log10(Math.abs(value)))));
// More than three digits of a throughput are not known.
const rate = value => (value == null ? "–" : count(Number(value.toPrecision(3))));
// In UTC, as the command line and the sentences have it.
const clock = at => {
  const date = new Date(at),
    day = { day: "numeric", month: "short", timeZone: "UTC" };
  if (isNaN(date)) return at;
  const of = each => each.toISOString().slice(0, 10),
    time = date.toISOString().slice(11, 19) + " UTC";
  return of(date) === of(new Date()) ? time : date.toLocaleDateString("en-GB", day) + " " + time;
};
const span = s =>
  s < 90
    ? Math.round(s) + " s"
    : s < 5400
      ? Math.round(s / 60) + " min"
      : s < 172800
        ? Math.round(s / 3600) + " h"
        : Math.round(s / 86400) + " days";
const plural = (n, word) => count(n) + " " + word + (n === 1 ? "" : "s");
