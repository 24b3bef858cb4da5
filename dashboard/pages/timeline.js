// The phases of a round as bars in time.

import { html, useEffect, useRef, useState } from '../lib/html.js';
import { bytes, integer, seconds, title } from '../lib/format.js';
import { ticks } from '../lib/chart.js';
import { useNow } from '../lib/resource.js';
import { PHASES, lostIn } from './task-charts.js';

const ROW = 34;
const LEFT = 104;
const RIGHT = 88;
/** An open round goes on each second; one that ended stays as it is. */
const [OPEN_MS, ENDED_MS] = [1_000, 3_600_000];

/** How far the present phase is, and until when it waits. */
export function PhaseProgress({ phase, now }) {
  const goal = phase.state === 'SELECTING' ? phase.min : (phase.max ?? phase.min);
  const left = phase.deadline_at ? (phase.deadline_at - now) / 1000 : null;
  const said = [
    phase.count != null && `${integer(phase.count)} so far`,
    phase.min != null && `at least ${integer(phase.min)} needed`,
    phase.max != null && phase.state !== 'SELECTING' && `closes at ${integer(phase.max)}`,
    left != null && (left > 0 ? `${seconds(left)} until the deadline` : 'the deadline is over'),
  ];
  return html`
    <div class="progress">
      ${goal && html`<progress max=${goal} value=${phase.count ?? 0} aria-label=${`${title(phase.state)}: ${phase.count ?? 0} of ${goal}`}></progress>`}
      <p class="note">${said.filter(Boolean).join(', ')}</p>
    </div>`;
}

export function Timeline({ round }) {
  const now = useNow(round.ended_at ? ENDED_MS : OPEN_MS);
  const box = useRef();
  const [width, setWidth] = useState(720);
  useEffect(() => {
    const observer = new ResizeObserver(([entry]) => setWidth(Math.max(260, Math.round(entry.contentRect.width))));
    observer.observe(box.current);
    return () => observer.disconnect();
  }, []);
  const begin = round.opened_at;
  const end = round.ended_at ?? Math.max(now, begin);
  const total = Math.max((end - begin) / 1000, 1e-3);
  const rows = round.phases.filter((phase) => PHASES.some(([state]) => state === phase.state)).map((phase) => {
    const [, , tone] = PHASES.find(([state]) => state === phase.state);
    const from = (phase.started_at - begin) / 1000;
    return { ...phase, tone, from, lost: lostIn(round, phase.state), takes: ((phase.ended_at ?? end) - phase.started_at) / 1000 };
  });
  const current = round.phases.find((phase) => phase.state === round.state && !phase.ended_at);
  const x = (at) => LEFT + (at / total) * (width - LEFT - RIGHT);
  const height = rows.length * ROW + 28;
  return html`
    <div ref=${box} class="timeline">
      <svg width=${width} height=${height} viewBox=${`0 0 ${width} ${height}`} aria-hidden="true">
        ${ticks(0, total, Math.max(2, Math.floor((width - LEFT) / 120))).map((tick) => html`
          <line class="grid" x1=${x(tick)} x2=${x(tick)} y1="0" y2=${height - 24} /><text class="tick" x=${x(tick)} y=${height - 8} text-anchor="middle">${seconds(tick)}</text>`)}
        ${rows.map((row, at) => html`
          <text class="row-name" x="0" y=${at * ROW + (row.lost > 0 ? 14 : 21)}>${title(row.state)}</text>
          ${row.lost > 0 && html`<text class="row-lost" x="0" y=${at * ROW + 28}>${integer(row.lost)} dropped out</text>`}
          <rect class="bar tone-${row.tone}" x=${x(row.from)} y=${at * ROW + 7} width=${Math.max(x(row.from + row.takes) - x(row.from), 2)} height="20" rx="3" />
          <text class="row-value" x=${Math.max(x(row.from + row.takes) + 6, LEFT + 6)} y=${at * ROW + 21}>${seconds(row.takes)}</text>`)}
      </svg>
      ${current && html`<${PhaseProgress} phase=${current} now=${now} />`}
      <details class="chart-table"><summary>As a table</summary>
        <div class="table-scroll" tabindex="0" role="region" aria-label="Phases of the round, as a table"><table>
          <thead><tr><th scope="col">Phase</th><th scope="col" class="number">Began after</th><th scope="col" class="number">Took</th><th scope="col" class="number">Participants</th><th scope="col" class="number">Needed</th><th scope="col" class="number">Dropped out</th><th scope="col" class="number">Up</th><th scope="col" class="number">Down</th></tr></thead>
          <tbody>${rows.map((row) => html`<tr><th scope="row">${title(row.state)}</th><td class="number">${seconds(row.from)}</td><td class="number">${seconds(row.takes)}</td><td class="number">${integer(row.count)}</td><td class="number">${integer(row.min)}</td><td class="number">${integer(row.lost)}</td><td class="number">${bytes(row.bytes_up)}</td><td class="number">${bytes(row.bytes_down)}</td></tr>`)}</tbody>
        </table></div>
      </details>
    </div>`;
}
