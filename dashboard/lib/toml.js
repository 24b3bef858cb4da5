// Task files: TOML without dates, which no key of a task takes.

/** Deepest nesting of lists and tables in a value. */
const DEPTH_MAX = 64;
const ESCAPES = { b: '\b', t: '\t', n: '\n', f: '\f', r: '\r', '"': '"', '\\': '\\' };

/** What the tables and lists are, which decides where more keys may be added. */
const IMPLICIT = 'implicit';
const HEADER = 'header';
const DOTTED = 'dotted';
const INLINE = 'inline';
const TABLES = 'tables';
const LIST = 'list';

/** The text of a task file as an object. An error names the line and what is wrong there. */
export const parseToml = (text) => new Reader(text).whole();

class Reader {
  constructor(text) {
    this.text = text.replace(/^\uFEFF/, '').replaceAll('\r\n', '\n');
    this.at = 0;
    this.kinds = new WeakMap();
    this.root = this.made({}, HEADER);
    this.table = this.root;
    this.depth = 0;
  }

  fail(what) {
    throw new Error(`line ${this.text.slice(0, this.at).split('\n').length}: ${what}`);
  }

  peek(token) {
    return this.text.startsWith(token, this.at);
  }

  take(token) {
    if (!this.peek(token)) return false;
    this.at += token.length;
    return true;
  }

  /** The text that a sticky pattern matches here, or undefined. */
  match(pattern) {
    pattern.lastIndex = this.at;
    const found = pattern.exec(this.text);
    if (found) this.at = pattern.lastIndex;
    return found?.[0];
  }

  blanks() {
    this.match(/[ \t]*/y);
  }

  /** Blanks, ends of lines and comments. */
  lines() {
    this.match(/(?:[ \t\n]+|#[^\n]*)*/y);
  }

  made(value, kind) {
    // Without a prototype, so that no key has a meaning of its own.
    const made = Array.isArray(value) ? value : Object.create(null);
    this.kinds.set(made, kind);
    return made;
  }

  whole() {
    for (this.lines(); this.at < this.text.length; this.lines()) {
      if (this.peek('[')) this.header();
      else this.pair(this.table);
      this.match(/[ \t]*(?:#[^\n]*)?/y);
      if (this.at < this.text.length && !this.peek('\n')) this.fail('something follows the value on its line');
    }
    return this.root;
  }

  key() {
    const parts = [];
    do {
      this.blanks();
      const part = this.peek('"') ? this.basic() : this.peek("'") ? this.literal() : this.match(/[A-Za-z0-9_-]+/y);
      parts.push(part ?? this.fail('a key is missing'));
      this.blanks();
    } while (this.take('.'));
    return parts;
  }

  header() {
    const isOfList = this.take('[[');
    if (!isOfList) this.take('[');
    const path = this.key();
    if (!this.take(isOfList ? ']]' : ']')) this.fail(`the name of the table lacks its ${isOfList ? ']]' : ']'}`);
    const name = path.pop();
    const outer = path.reduce((table, part) => this.inner(table, part, IMPLICIT), this.root);
    const [there, called] = [outer[name], [...path, name].join('.')];
    if (isOfList) {
      const list = there ?? (outer[name] = this.made([], TABLES));
      if (this.kinds.get(list) !== TABLES) this.fail(`${called} is no list of tables`);
      this.table = this.made({}, HEADER);
      list.push(this.table);
    } else if (there === undefined) {
      this.table = outer[name] = this.made({}, HEADER);
    } else {
      if (this.kinds.get(there) !== IMPLICIT) this.fail(`${called} is written twice`);
      this.kinds.set(there, HEADER);
      this.table = there;
    }
  }

  /** The table `part` of another one, made where it is missing; for headers, the last one of a list. */
  inner(table, part, kind) {
    const there = table[part];
    if (there === undefined) return (table[part] = this.made({}, kind));
    const found = this.kinds.get(there);
    if (kind === IMPLICIT && found === TABLES) return there.at(-1);
    const isOpen = kind === DOTTED ? found === DOTTED : [IMPLICIT, HEADER, DOTTED].includes(found);
    return isOpen ? there : this.fail(`no key can be added to ${part} here`);
  }

  pair(table) {
    const path = this.key();
    if (!this.take('=')) this.fail(`a = is missing after ${path.join('.')}`);
    this.blanks();
    const name = path.pop();
    const outer = path.reduce((inner, part) => this.inner(inner, part, DOTTED), table);
    if (name in outer) this.fail(`${[...path, name].join('.')} is written twice`);
    outer[name] = this.value();
  }

  value() {
    if (this.peek('"""') || this.peek("'''")) return this.block();
    if (this.peek('"')) return this.basic();
    if (this.peek("'")) return this.literal();
    if (this.peek('[') || this.peek('{')) {
      if (++this.depth > DEPTH_MAX) this.fail('lists and tables are nested too deeply');
      const value = this.peek('[') ? this.list() : this.inline();
      this.depth--;
      return value;
    }
    const word = this.match(/[^\s,\]}#]+/y) ?? '';
    return word === 'true' || (word === 'false' ? false : this.number(word));
  }

  number(word) {
    const plain = word.replace(/(?<=[0-9a-fA-F])_(?=[0-9a-fA-F])/g, '');
    if (/^(?:[+-]?(?:0|[1-9]\d*)|0x[\da-fA-F]+|0o[0-7]+|0b[01]+)$/.test(plain)) {
      const whole = Number(plain);
      // What JSON.parse and JSON.stringify of a browser would round.
      return Number.isSafeInteger(whole) ? whole : this.fail(`${word} is beyond 2^53, which browsers round: use \`tributary task create\``);
    }
    if (/^[+-]?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?$/.test(plain)) return Number(plain);
    if (/^\d{4}-\d\d-|^\d\d:\d\d/.test(word)) this.fail(`${word} is a date or time; no key of a task takes one`);
    return this.fail(word === '' ? 'a value is missing' : `${word} is no value: texts are in quotes, numbers finite`);
  }

  list() {
    this.at++;
    const list = this.made([], LIST);
    for (;;) {
      this.lines();
      if (this.take(']')) return list;
      list.push(this.value());
      this.lines();
      if (!this.take(',') && !this.peek(']')) this.fail('a list lacks a , or ]');
    }
  }

  inline() {
    this.at++;
    const table = this.made({}, INLINE);
    for (;;) {
      this.lines();
      if (this.take('}')) return table;
      this.pair(table);
      this.lines();
      if (!this.take(',') && !this.peek('}')) this.fail('a table in braces lacks a , or }');
    }
  }

  basic() {
    this.at++;
    for (let text = ''; ; ) {
      text += this.match(/[^"\\\n]*/y);
      if (this.take('"')) return text;
      if (!this.peek('\\')) this.fail('a text lacks its closing "');
      text += this.escape();
    }
  }

  literal() {
    this.at++;
    const text = this.match(/[^'\n]*/y);
    return this.take("'") ? text : this.fail("a text lacks its closing '");
  }

  /** A text of several lines, between three quotes. */
  block() {
    const quote = this.text[this.at];
    const [plain, quotes] = quote === '"' ? [/[^"\\]*/y, /"{1,5}/y] : [/[^']*/y, /'{1,5}/y];
    this.at += 3;
    this.take('\n');
    for (let text = ''; ; ) {
      text += this.match(plain);
      const found = this.match(quotes) ?? '';
      if (found.length >= 3) return text + found.slice(3);
      text += found;
      if (found) continue;
      if (!this.peek('\\')) this.fail(`a text lacks its closing ${quote.repeat(3)}`);
      if (!this.match(/\\[ \t]*\n[ \t\n]*/y)) text += this.escape();
    }
  }

  escape() {
    const [, letter] = this.match(/\\[btnfr"\\]/y) ?? [];
    if (letter) return ESCAPES[letter];
    const digits = this.match(/\\u[0-9a-fA-F]{4}|\\U[0-9a-fA-F]{8}/y)?.slice(2);
    const point = digits === undefined ? -1 : parseInt(digits, 16);
    if (point < 0 || point > 0x10ffff || (point >= 0xd800 && point < 0xe000)) this.fail('a text has an unknown escape after \\');
    return String.fromCodePoint(point);
  }
}
