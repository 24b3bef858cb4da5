// The phases of a round as bars in time.

import { html, useEffect, useRef, useState } from '../lib/html.js';
import { bytes, integer, seconds, title } from '../lib/format.js';
import { ticks } from '../lib/chart.js';
import { PHASES } from './task-charts.js';

const ROW = 34;
const LEFT = 104;
const RIGHT = 88;

export function Timeline({ round }) {
  const box = useRef();
  const [width, setWidth] = useState(720);
  useEffect(() => {
    const observer = new ResizeObserver(([entry]) => setWidth(Math.max(260, Math.round(entry.contentRect.width))));
    observer.observe(box.current);
    return () => observer.disconnect();
  }, []);
  const begin = round.opened_at;
  const end = round.ended_at ?? Date.now();
  const total = Math.max((end - begin) / 1000, 1e-3);
  const rows = round.phases.filter((phase) => PHASES.some(([state]) => state === phase.state)).map((phase) => {
    const [, , tone] = PHASES.find(([state]) => state === phase.state);
    const from = (phase.started_at - begin) / 1000;
    return { ...phase, tone, from, takes: ((phase.ended_at ?? end) - phase.started_at) / 1000 };
  });
  const x = (at) => LEFT + (at / total) * (width - LEFT - RIGHT);
  const height = rows.length * ROW + 28;
  return html`
    <div ref=${box} class="timeline">
      <svg width=${width} height=${height} viewBox=${`0 0 ${width} ${height}`} aria-hidden="true">
        ${ticks(0, total, Math.max(2, Math.floor((width - LEFT) / 120))).map((tick) => html`
          <line class="grid" x1=${x(tick)} x2=${x(tick)} y1="0" y2=${height - 24} /><text class="tick" x=${x(tick)} y=${height - 8} text-anchor="middle">${seconds(tick)}</text>`)}
        ${rows.map((row, at) => html`
          <text class="row-name" x="0" y=${at * ROW + 21}>${title(row.state)}</text>
          <rect class="bar tone-${row.tone}" x=${x(row.from)} y=${at * ROW + 7} width=${Math.max(x(row.from + row.takes) - x(row.from), 2)} height="20" rx="3" />
          <text class="row-value" x=${Math.max(x(row.from + row.takes) + 6, LEFT + 6)} y=${at * ROW + 21}>${seconds(row.takes)}</text>`)}
      </svg>
      <details class="chart-table"><summary>As a table</summary>
        <div class="table-scroll" tabindex="0" role="region" aria-label="Phases of the round, as a table"><table>
          <thead><tr><th scope="col">Phase</th><th scope="col" class="number">Began after</th><th scope="col" class="number">Took</th><th scope="col" class="number">Participants</th><th scope="col" class="number">Needed</th><th scope="col" class="number">Up</th><th scope="col" class="number">Down</th></tr></thead>
          <tbody>${rows.map((row) => html`<tr><th scope="row">${title(row.state)}</th><td class="number">${seconds(row.from)}</td><td class="number">${seconds(row.takes)}</td><td class="number">${integer(row.count)}</td><td class="number">${integer(row.min)}</td><td class="number">${bytes(row.bytes_up)}</td><td class="number">${bytes(row.bytes_down)}</td></tr>`)}</tbody>
        </table></div>
      </details>
    </div>`;
}
