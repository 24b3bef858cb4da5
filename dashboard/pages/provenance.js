// Where a model version comes from: the record that the coordinator signed when it was published, and how somebody checks it who does not trust us.

import { html } from '../lib/html.js';
import { get, path } from '../lib/api.js';
import { bytes, exactly, figure, integer, short } from '../lib/format.js';
import { to } from '../lib/router.js';
import { useResource } from '../lib/resource.js';
import { Button, Copy, Dialog, Facts, Icon, Loaded } from '../lib/ui.js';

const ORIGINS = {
  initial: 'the first version, which nobody trained',
  trained: 'trained by a cohort',
  restored: 'an earlier version, again',
};

const digest = (value) => value && html`<code title=${value}>${short(value)}</code>`;

export function Provenance({ task, version, onClose }) {
  const address = path`/v1/tasks/${task.id}/models/${version}/provenance`;
  const file = `${task.name}-v${version}`;
  const signed = useResource(async (signal) => {
    const { record } = await get(address, { signal });
    return JSON.parse(record);
  }, [address]);
  return html`
    <${Dialog} heading=${`Where version ${integer(version)} comes from`} onClose=${onClose}>
      <${Loaded} of=${signed} what="Loading the record">
        ${(record) => html`
          <${Facts} items=${[
            ['Origin', ORIGINS[record.origin] ?? record.origin],
            ['From', record.base && html`version ${integer(record.base.version)} ${digest(record.base.sha256)}`],
            ['Round', record.round && html`<a href=${to('tasks', task.id, 'rounds', record.round.round)} onClick=${onClose}>round ${integer(record.round.round)}</a>${record.round.attempt > 1 && `, attempt ${record.round.attempt}`}`],
            ['Updates in the sum', record.updates != null && integer(record.updates)],
            ['Cohort', record.roster && html`${digest(record.roster)} <span class="note">of who was drawn</span>`],
            ['Of whom', record.survivors && html`${digest(record.survivors)} <span class="note">of whose updates are in the sum</span>`],
            ['Privacy so far', record.privacy && `ε ${figure(record.privacy.epsilon)}, δ ${record.privacy.delta}`],
            ['File', html`${digest(record.sha256)} ${bytes(record.bytes)}`],
            ['What was asked', html`${digest(record.task_sha256)} <span class="note">of the task as participants see it</span>`],
            ['Published', exactly(record.published_at)],
            ['Signed', record.signed_at !== record.published_at && exactly(record.signed_at)],
            ['By', record.program],
          ].filter(([, value]) => value)} />
          <div class="digest"><span class="note">Signed by this coordinator’s key (Ed25519), the one of the audit log</span><${Copy} text=${record.coordinator} label="Key of the coordinator" /></div>
          <p class="note">Whoever has the file, this record and the key from a source of their own checks them without the coordinator:</p>
          <${Copy} text=${`tributary model verify ${file}.safetensors --provenance ${file}.json --key ${record.coordinator}`} label="Command that checks" />`}
      <//>
      <div class="actions">
        ${signed.data && html`<a class="button button-plain" href=${address} download=${`${file}.json`}><${Icon} name="down" />Download the record</a>`}
        <${Button} kind="primary" onClick=${onClose}>Close<//>
      </div>
    <//>`;
}
