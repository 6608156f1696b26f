/** What a function's instances cost on this machine: measured, predicted, and which of them a load calls for. */
export * from './list-chooser.ts';
export * from './measure/index.ts';
export * from './predict/index.ts';
