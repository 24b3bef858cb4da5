// The header of a safetensors file: names, types and shapes of its tensors. Values stay on the disk.

/** The longest header that the coordinator reads, in bytes. */
const HEADER_MAX = 4 << 20;
/** Bits of an element. */
const BITS = { BOOL: 8, U8: 8, I8: 8, F8_E4M3: 8, F8_E5M2: 8, U16: 16, I16: 16, F16: 16, BF16: 16, U32: 32, I32: 32, F32: 32, U64: 64, I64: 64, F64: 64 };
const INTEGERS = /^(?:BOOL|[UI]\d+)$/;
const FLOATS = new Set(['F32', 'F16', 'BF16']);

const product = (sizes) => sizes.reduce((all, size) => all * size, 1);
const isSize = (value) => Number.isSafeInteger(value) && value >= 0;
const isList = (value, length) => Array.isArray(value) && value.every(isSize) && (length === undefined || value.length === length);

/**
 * The tensors of a file in the order of their data: `{ name, type, shape, count, from }`, where `from` is the first byte. Integers, which no training changes, have `isSkipped`.
 * An error says what is wrong with the file.
 */
export async function readTensors(file) {
  const head = new DataView(await file.slice(0, 8).arrayBuffer());
  if (head.byteLength < 8) throw new Error('is no safetensors file: it has no header');
  const length = Number(head.getBigUint64(0, true));
  if (length > HEADER_MAX) throw new Error(`is no safetensors file, or has a header of ${length} bytes; at most ${HEADER_MAX} are read`);
  const entries = Object.entries(parsed(await file.slice(8, 8 + length).text())).filter(([name]) => name !== '__metadata__');
  const tensors = entries.map(([name, entry]) => tensor(name, entry)).sort((one, other) => one.start - other.start || one.end - other.end);
  let end = 0;
  for (const { name, start, end: next } of tensors) {
    if (start !== end) throw new Error(`is damaged: the data of the tensor ${name} begin at ${start} instead of ${end}`);
    end = next;
  }
  if (file.size !== 8 + length + end) throw new Error(`has ${file.size} bytes instead of ${8 + length + end}: it is cut off, or has more than its tensors`);
  if (!tensors.some(({ isSkipped }) => !isSkipped)) throw new Error('has no tensor of floating-point numbers');
  return tensors.map(({ name, type, shape, count, start, isSkipped }) => ({ name, type, shape, count, from: 8 + length + start, isSkipped }));
}

function parsed(text) {
  try {
    const header = JSON.parse(text);
    if (header !== null && typeof header === 'object' && !Array.isArray(header)) return header;
  } catch {
    // Told below.
  }
  throw new Error('is no safetensors file: its header is no JSON object');
}

function tensor(name, entry) {
  const { dtype: type, shape, data_offsets: offsets } = entry ?? {};
  if (!Object.hasOwn(BITS, type) || !isList(shape) || !isList(offsets, 2)) throw new Error(`is damaged, or newer than this page: the tensor ${name} has an unknown form`);
  const count = product(shape);
  const [start, end] = offsets;
  if (end - start !== (count * BITS[type]) / 8) throw new Error(`is damaged: the tensor ${name} has ${end - start} bytes for [${shape.join(', ')}] of ${type}`);
  const isSkipped = INTEGERS.test(type);
  if (!isSkipped && !FLOATS.has(type)) throw new Error(`cannot be used: the tensor ${name} holds ${type}; F32, F16 and BF16 are possible`);
  return { name, type, shape, count, start, end, isSkipped };
}
