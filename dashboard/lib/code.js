// QR codes that devices scan.

/** Light modules around a code. */
const QUIET = 4;

/** The dark modules of a QR code of this value as JSON, as one path. The encoder is loaded when it is needed. */
export async function drawn(value) {
  const { qrcode } = await import('../vendor/qrcode.js');
  const code = qrcode(0, 'L');
  code.addData(JSON.stringify(value));
  code.make();
  const size = code.getModuleCount();
  let shape = '';
  for (let row = 0; row < size; row++) for (let column = 0; column < size; column++) if (code.isDark(row, column)) shape += `M${column + QUIET} ${row + QUIET}h1v1h-1z`;
  return { shape, size: size + 2 * QUIET };
}
