/** Compiles a model with given input shapes to a program. */
export * from './types.ts';
export { compileProgram, defaultSettings, type CompileOptions } from './compile.ts';
export { compileModel, type CompileModelOptions } from './compile-model.ts';
export { ProgramError, type ProgramErrorCode } from './error.ts';
export { parseProgram, programFormat, serializeProgram } from './serialize.ts';
