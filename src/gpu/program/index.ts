/** Programs: from a model with input shapes to launches over one arena. */
export * from './types.ts';
export { compileProgram, defaultSettings, type CompileOptions } from './compile.ts';
export { compileModel, type CompileModelOptions } from './compile-model.ts';
export { ProgramError, type ProgramErrorCode } from './error.ts';
export { parseProgram, programFormat, serializeProgram } from './serialize.ts';
