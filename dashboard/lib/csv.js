// The columns of a table in a CSV file: what each has, by the first rows of a sample.

/** So much of a file is read, in bytes; its last line may be cut. */
const SAMPLE = 1 << 20;
/** More different words are no categories. */
const WORDS_MAX = 40;

/** Lines of cells: commas between them, quotes around cells with commas, and quotes within doubled. */
function cellsOf(text) {
  const lines = [[]];
  const cell = /"((?:[^"]|"")*)"|([^,\r\n]*)/y;
  for (let at = 0; at <= text.length; ) {
    cell.lastIndex = at;
    const [whole, quoted, plain] = cell.exec(text);
    lines.at(-1).push(quoted === undefined ? plain : quoted.replaceAll('""', '"'));
    at += whole.length;
    if (text[at] === ',') at++;
    else if (at >= text.length) break;
    else {
      const end = /\r?\n|\r/y;
      end.lastIndex = at;
      const found = end.exec(text);
      if (!found) throw new Error(`has something after a quoted cell in line ${lines.length}`);
      at += found[0].length;
      lines.push([]);
    }
  }
  return lines;
}

const isNumber = (text) => text.trim() !== '' && Number.isFinite(Number(text));

/** What a column has: numbers from `low` to `high`, the words `oneOf`, or neither. */
function contentOf(name, cells) {
  const given = cells.filter((text) => text.trim() !== '');
  const words = [...new Set(given)].sort((one, other) => one.localeCompare(other, 'en', { numeric: true }));
  const oneOf = words.length > 0 && words.length <= WORDS_MAX ? words : null;
  if (given.length > 0 && given.every(isNumber)) {
    const numbers = given.map(Number);
    return { name, kind: 'numbers', low: numbers.reduce((one, other) => Math.min(one, other)), high: numbers.reduce((one, other) => Math.max(one, other)), oneOf };
  }
  return { name, kind: oneOf ? 'words' : 'texts', oneOf };
}

/** The columns of a file with a header, and how many rows were looked at. An error says what is wrong with the file. */
export async function readColumns(file) {
  const isCut = file.size > SAMPLE;
  const [header, ...rows] = cellsOf((await file.slice(0, SAMPLE).text()).replace(/^\uFEFF/, ''));
  if (isCut || rows.at(-1)?.join('') === '') rows.pop();
  if (header.some((name) => name.trim() === '')) throw new Error('has no name for each column in its first line');
  if (new Set(header).size < header.length) throw new Error('has a column twice');
  if (rows.length === 0) throw new Error('has no rows below its header');
  const wrong = rows.findIndex((row) => row.length !== header.length);
  if (wrong >= 0) throw new Error(`has ${rows[wrong].length} cells in row ${wrong + 1} and ${header.length} columns`);
  return { columns: header.map((name, at) => contentOf(name, rows.map((row) => row[at]))), rows: rows.length };
}
