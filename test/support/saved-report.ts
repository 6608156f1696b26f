/** The data in a page that `--html` wrote. */
export function savedIn(html: string): unknown {
  const [, json = 'null'] = /<script type="application\/json" id="saved">(.*)<\/script>/.exec(html) ?? [];
  return JSON.parse(json);
}
