// The framework, in one place: everything else imports it from here.
export { html, render, useState, useEffect, useMemo, useRef, useCallback, useLayoutEffect } from '../vendor/preact.js';
