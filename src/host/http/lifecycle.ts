/** The host's phase between start and end; the code that starts and stops it changes `phase`. */
export interface Lifecycle {
  readonly phase: 'starting' | 'ready' | 'draining';
}
