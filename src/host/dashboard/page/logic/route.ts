/** The view that the address after '#' names. */
export type Route =
  | { readonly view: 'overview' }
  | { readonly view: 'functions' }
  | { readonly view: 'function'; readonly name: string }
  /** `name`: the function that gets a new version; '' for a new function. */
  | { readonly view: 'publish'; readonly name: string }
  | { readonly view: 'memory' }
  | { readonly view: 'machine' }
  | { readonly view: 'fleet' }
  | { readonly view: 'reports' }
  /** `recorded`: the number of a cold start on this host; undefined for a plan. */
  | { readonly view: 'anatomy'; readonly recorded: string | undefined };

export function routeOf(hash: string): Route {
  const [path = '', query] = hash.replace(/^#?\/?/, '').split('?');
  const [first = '', second] = path.split('/');
  switch (first) {
    case 'functions':
      return second === undefined || second === ''
        ? { view: 'functions' }
        : { view: 'function', name: decoded(second) };
    case 'publish':
      return { view: 'publish', name: new URLSearchParams(query).get('name') ?? '' };
    case 'memory':
    case 'machine':
    case 'fleet':
    case 'reports':
      return { view: first };
    case 'anatomy':
      return { view: 'anatomy', recorded: second === undefined || second === '' ? undefined : second };
    default:
      return { view: 'overview' };
  }
}

/** A '%' that encodes nothing stays as it is: the page then says that there is no such function. */
function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

export const functionLink = (name: string): string => `#/functions/${encodeURIComponent(name)}`;
