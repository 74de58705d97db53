"use strict";
// Lists and tables of any length: searched by words, sorted by a column, shown a page at a time.
// Where all fits on one page there is nothing to see of it but the columns that sort.

// Puts nodes in place of others; who had the keyboard's focus in them keeps it, by data-key.
function putKeeping(box, nodes) {
  const key = box.contains(document.activeElement) ? document.activeElement.dataset.key : null;
  box.replaceChildren(...nodes);
  if (key != null)
    for (const node of box.querySelectorAll("[data-key]"))
      if (node.dataset.key === key) return node.focus();
}

class Listing {
  // box: where it stands; size: how many are shown at once; noun: of one and of many;
  // draw: from items to nodes. An item has `text`, in which words are searched.
  constructor(box, { size, noun: [one, many], draw }) {
    Object.assign(this, { box, size, one, many, make: draw, items: [], page: 0 });
    this.search = el("input", {
      type: "search",
      placeholder: "Search " + many,
      "aria-label": "Search " + many,
      autocomplete: "off",
      spellcheck: "false",
    });
    this.search.oninput = () => {
      this.page = 0;
      this.draw();
    };
    this.body = el("div");
    this.said = el("span", { role: "status" });
    this.back = el("button", { type: "button", "aria-label": "page before, of " + many }, "←");
    this.next = el("button", { type: "button", "aria-label": "next page, of " + many }, "→");
    this.back.onclick = () => {
      this.page -= 1;
      this.draw();
    };
    this.next.onclick = () => {
      this.page += 1;
      this.draw();
    };
    this.tools = el(
      "div",
      { class: "tools", hidden: "" },
      this.search,
      this.said,
      this.back,
      this.next,
    );
  }

  show(items) {
    this.items = items;
    if (this.tools.parentNode !== this.box) this.box.replaceChildren(this.tools, this.body);
    this.draw();
  }

  // In their order, by what is searched.
  found() {
    const words = this.search.value.toLowerCase().split(/\s+/).filter(Boolean);
    return this.items.filter(item => words.every(word => item.text.toLowerCase().includes(word)));
  }

  draw() {
    const found = this.found(),
      { size, items } = this,
      last = Math.max(0, Math.ceil(found.length / size) - 1);
    this.page = Math.min(Math.max(this.page, 0), last);
    const begin = this.page * size,
      shown = found.slice(begin, begin + size);
    this.tools.hidden = items.length <= size;
    this.back.disabled = this.page === 0;
    this.next.disabled = this.page === last;
    const said =
      found.length > size
        ? begin + 1 + "–" + (begin + shown.length) + " of " + found.length.toLocaleString("en-GB")
        : found.length + " " + (found.length === 1 ? this.one : this.many);
    if (this.said.textContent !== said) this.said.textContent = said; // else a screen reader would say it again
    putKeeping(
      this.body,
      found.length || !items.length
        ? this.make(shown)
        : [el("p", { class: "empty" }, "None of them has these words.")],
    );
  }
}

// A table whose columns sort. A column is { name, meaning, number, label, value }: `value` is what
// of an item is compared, and without it the column does not sort; `label` stands beside its
// numbers on a phone.
class Grid extends Listing {
  constructor(box, { columns, row, groups = null, stack = true, ...more }) {
    super(box, { ...more, draw: items => this.table(items) });
    Object.assign(this, { columns, row, groups, stack, by: null, down: false });
  }

  found() {
    const found = super.found(),
      column = this.columns().find(one => one.name === this.by && one.value);
    if (!column) return found;
    const sign = this.down ? -1 : 1,
      missing = value => value == null || Number.isNaN(value);
    return found
      .map(item => [column.value(item), item])
      .sort(([a], [b]) =>
        missing(a) || missing(b)
          ? missing(a) - missing(b)
          : sign * (typeof a === "string" ? a.localeCompare(b, "en") : a - b),
      )
      .map(([, item]) => item);
  }

  // First numbers from the largest and words from A; then the other way round; then as they came.
  sort({ name, number }) {
    const first = !!number;
    if (this.by !== name) [this.by, this.down] = [name, first];
    else if (this.down === first) this.down = !first;
    else this.by = null;
    this.page = 0;
    this.draw();
  }

  head(column) {
    const { name, meaning, number, value } = column,
      on = this.by === name;
    const th = el("th", {
      class: number ? "n" : "",
      title: meaning,
      scope: "col",
      "aria-sort": on ? (this.down ? "descending" : "ascending") : null,
    });
    if (!value || this.items.length < 2) {
      th.append(name);
      return th;
    }
    const button = el(
      "button",
      { type: "button", class: "sort", "data-key": "sort " + name },
      name,
      on ? el("i", { "aria-hidden": "true" }, this.down ? " ↓" : " ↑") : null,
    );
    button.onclick = () => this.sort(column);
    th.append(button);
    return th;
  }

  table(items) {
    const columns = this.columns(),
      heads = [el("tr", {}, ...columns.map(one => this.head(one)))];
    if (this.groups)
      heads.unshift(
        el(
          "tr",
          { class: "groups" },
          ...this.groups().map(([name, span]) =>
            el("th", { colspan: span, scope: "colgroup" }, name),
          ),
        ),
      );
    const rows = items.map(item => {
      const row = this.row(item);
      [...row.children].forEach((cell, i) => {
        if (this.stack && columns[i]?.number)
          cell.dataset.label = columns[i].label || columns[i].name;
      });
      return row;
    });
    return [
      el(
        "div",
        { class: "scroll" },
        el(
          "table",
          { class: this.stack ? "stack" : "", "aria-label": this.many },
          el("thead", {}, ...heads),
          el("tbody", {}, ...rows),
        ),
      ),
      meanings(
        this.many,
        columns.map(one => [one.name, one.meaning]),
      ),
    ].filter(Boolean);
  }
}
