/** Turntable as a library: what a handler's author or a program around the host imports. */
export * from './tensor/index.ts';
