// Why a round may wait for ever: its participants have given an update from its model version before.

import { html } from '../lib/html.js';
import { plural } from '../lib/format.js';
import { Notice } from '../lib/ui.js';

/** Masks alone hide one update from each base, so participants that have given theirs wait for the next version. */
export const Given = ({ round }) => round.base_given_by > 0 && round.state === 'SELECTING' && html`<${Notice}><p>${plural(round.base_given_by, 'participant')} gave an update from this very model before, perhaps in another task, and ${round.base_given_by === 1 ? 'gives' : 'give'} no second one unless it is proven that the first is in no sum. The round needs others.</p><//>`;
