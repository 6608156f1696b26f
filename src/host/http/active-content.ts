/** Replies of functions that a browser would run as a page of the dashboard's origin. */

const activeTypes = /^\s*(?:text\/html|text\/xml|application\/xml|text\/xsl|[\w.+-]+\/[\w.-]+\+xml)\s*(?:[;,]|$)/i;

/** Headers that take a reply's scripts, forms and origin from it; a reply without a type could be guessed to be HTML. */
export function sandboxHeaders(contentType: string | undefined): string[] {
  if (contentType !== undefined && !activeTypes.test(contentType)) return [];
  return ['X-Content-Type-Options', 'nosniff', 'Content-Security-Policy', 'sandbox'];
}
