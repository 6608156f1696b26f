import { expect, test } from 'vitest';
import { sandboxHeaders } from './active-content.ts';

test.each([
  undefined,
  'text/html',
  'Text/HTML; charset=utf-8',
  'application/xhtml+xml',
  'image/svg+xml',
  'text/xml',
  'application/xml',
])('a reply of type %s runs in a sandbox', (type) => {
  expect(sandboxHeaders(type)).toEqual(['X-Content-Type-Options', 'nosniff', 'Content-Security-Policy', 'sandbox']);
});

test.each(['application/json', 'text/plain', 'image/png', 'text/htmlx'])('a reply of type %s does not', (type) => {
  expect(sandboxHeaders(type)).toEqual([]);
});
