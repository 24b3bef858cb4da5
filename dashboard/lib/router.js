// Addresses after the hash, so that the coordinator has one page and unknown paths stay unknown.

import { useEffect, useState } from './html.js';

const parts = () =>
  location.hash
    .replace(/^#\/?/, '')
    .split('?')[0]
    .split('/')
    .filter(Boolean)
    .map((part) => {
      try {
        return decodeURIComponent(part);
      } catch {
        return part;
      }
    });

export function useRoute() {
  const [route, setRoute] = useState(parts);
  useEffect(() => {
    const changed = () => {
      setRoute(parts());
      scrollTo(0, 0);
      document.getElementById('content')?.focus({ preventScroll: true });
    };
    addEventListener('hashchange', changed);
    // The address may have changed since the first drawing, before anybody listened.
    setRoute((before) => (before.join('/') === parts().join('/') ? before : parts()));
    return () => removeEventListener('hashchange', changed);
  }, []);
  return route;
}

export const to = (...names) => `#/${names.map(encodeURIComponent).join('/')}`;
export const go = (...names) => {
  location.hash = to(...names);
};

const LEFT = 'tributary-left';

/** Goes to another site; whoever comes back to `/` is taken to where the way began. */
export function leave(url) {
  try {
    sessionStorage.setItem(LEFT, location.hash);
  } catch {
    // Storage may be switched off: the way back then ends at the first page.
  }
  location.assign(url);
}

/** To where the way to another site began, if this page was left for one. */
export function comeBack() {
  try {
    const left = sessionStorage.getItem(LEFT);
    sessionStorage.removeItem(LEFT);
    if (left?.startsWith('#/') && !location.hash) location.replace(left);
  } catch {
    // As above.
  }
}
