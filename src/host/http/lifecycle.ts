/** Where the host stands between its start and its end; whoever starts and stops it changes `phase`. */
export interface Lifecycle {
  readonly phase: 'starting' | 'ready' | 'draining';
}
