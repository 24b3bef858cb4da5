// A browser and its windows.

import assert from 'node:assert/strict';
import { existsSync, readFileSync } from 'node:fs';
import { extname, join } from 'node:path';
import { chromium } from 'playwright-core';

const TYPES = { '.js': 'text/javascript', '.css': 'text/css', '.svg': 'image/svg+xml' };

export function launch() {
  const executablePath = ['/usr/bin/chromium', '/usr/bin/chromium-browser', '/usr/bin/google-chrome'].find(existsSync);
  assert.ok(executablePath, 'there is no Chromium');
  return chromium.launch({ executablePath, args: process.getuid?.() === 0 ? ['--no-sandbox'] : [] });
}

/** A window without cookies; TRIBUTARY_DASHBOARD=FOLDER has it show the pages from that folder instead of those in the program. */
export async function open(browser, options = {}) {
  const context = await browser.newContext({ ignoreHTTPSErrors: true, viewport: { width: 1280, height: 900 }, colorScheme: 'light', ...options });
  const source = process.env.TRIBUTARY_DASHBOARD;
  if (source) {
    await context.route('**/assets/*/**', (route) => {
      const name = new URL(route.request().url()).pathname.split('/').slice(3).join('/');
      return route.fulfill({ body: readFileSync(join(source, name)), contentType: TYPES[extname(name)] });
    });
  }
  const page = await context.newPage();
  page.setDefaultTimeout(20_000);
  return { context, page };
}

export const signIn = async (page, token) => {
  await page.getByLabel('Operator token').fill(token);
  await page.getByRole('button', { name: 'Sign in', exact: true }).click();
};
