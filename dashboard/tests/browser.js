// The dashboard in a real browser, over a real federation: sign-in, a task from its form to its models, and whatever an operator
// does with participants and tokens. Every page, empty, full or in trouble, is looked at by axe and kept as a picture; every control is reached
// by keys alone; script is written into every text.
//
//   node browser.js BINARY OUT
//
// TRIBUTARY_DASHBOARD=FOLDER serves the pages from that folder instead of those in the program, for whoever works on them.

import { end, open, picture, problems, said } from './stage.js';
import { charting, exploring } from './steps/charts.js';
import { leaving, readingTheReference, signingIn, signingInElsewhere, trusting } from './steps/entering.js';
import { finding } from './steps/finding.js';
import { opening, tabbing, typing } from './steps/keyboard.js';
import { losingAnswers } from './steps/losing.js';
import { scripting } from './steps/scripts.js';
import { servingModels } from './steps/serving.js';
import { looking, lookingAtNothing } from './steps/states.js';
import { auditing, comparing, controlling, droppingOut, followingAParticipant, goingWithout, missingNothing, readingLedgers, revoking } from './steps/tending.js';
import { followingARegion } from './steps/regions.js';
import { sorting } from './steps/tables.js';
import { creating, drawingManyRounds, enrolling, lookingAtATask, rollingBack, usingModels, watching } from './steps/training.js';
import { carrying, readingFiles, resuming } from './steps/uploading.js';
import { launch } from './window.js';

const STEPS = [
  trusting, signingIn, signingInElsewhere, lookingAtNothing, enrolling, creating, watching, lookingAtATask, drawingManyRounds, usingModels, readingFiles, carrying, resuming, servingModels, rollingBack,
  controlling, goingWithout, missingNothing, readingLedgers, charting, exploring, sorting, followingARegion, comparing, droppingOut, followingAParticipant, revoking, finding, auditing, looking, losingAnswers, scripting, typing, opening, tabbing,
  readingTheReference, leaving,
];
const browser = await launch();
let failed = null;
let page;
try {
  ({ page } = await open(browser));
  for (const step of STEPS) {
    said(step.name);
    await step(page);
  }
} catch (error) {
  failed = error;
  await page?.screenshot({ path: picture('FAILED.png'), fullPage: true }).catch(() => {});
} finally {
  await browser.close();
  end();
}
for (const problem of [...new Set(problems)]) console.log(`WRONG ${problem}`);
if (failed) console.log(failed.stack);
if (failed || problems.length > 0) process.exit(1);
said('the dashboard does what it says, and axe finds nothing wrong');
