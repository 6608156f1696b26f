/** Runs a function in the calling process, for trying it out: one call at a time, without time limits. */
import type { ModelOpening } from '../../onnx/index.ts';
import { loadOnnxRuntime, type Tensor } from '../../tensor/index.ts';
import { CpuError, type HandlerRequest, type HandlerResponse, type InvokeOthers } from '../types.ts';
import type { Handler } from './handler.ts';
import { checkGiven, handlerCall, loadHandler, runPostprocess, runPreprocess } from './handler-runner.ts';
import { failure } from './failure.ts';
import { answersOf } from './other-answers.ts';
import { OtherCalls } from './others.ts';
import { withTensors } from './protocol.ts';
import { ModelSession } from './session.ts';

export interface InProcessTimes {
  readonly preprocessMs: number;
  readonly inferMs: number;
  readonly postprocessMs: number;
}

/** ONNX Runtime writes nothing between the lines of the command: the errors have the same text. */
const settings = { threads: 1, spinning: false, isAlone: true, logSeverity: 4 } as const;

export class FunctionInProcess {
  /** How long the model took to load. */
  readonly loadMs: number;
  readonly #session: ModelSession;
  readonly #optionalInputs: readonly string[];
  readonly #handler: Handler | undefined;

  private constructor(
    session: ModelSession,
    optionalInputs: readonly string[],
    handler: Handler | undefined,
    loadMs: number,
  ) {
    this.#session = session;
    this.#optionalInputs = optionalInputs;
    this.#handler = handler;
    this.loadMs = loadMs;
  }

  /**
   * Rejects with ONNX Runtime's words, or with the error that the handler threw while loading.
   *
   * @param handlerPath compiled, as an instance gets it
   */
  static async open(
    modelPath: string,
    handlerPath: string | undefined,
    opening?: ModelOpening,
  ): Promise<FunctionInProcess> {
    const handler = handlerPath === undefined ? undefined : await loadHandler(handlerPath, 0);
    const startMs = performance.now();
    loadOnnxRuntime().env.logLevel = 'fatal';
    const session = await ModelSession.open(modelPath, settings, opening);
    return new FunctionInProcess(session, opening?.optionalInputs ?? [], handler, performance.now() - startMs);
  }

  /**
   * A call through the handler. Rejects with {@link CpuError}.
   *
   * @param now the clock for the timings, in milliseconds
   */
  async answer(
    request: HandlerRequest,
    invokeOthers: InvokeOthers,
    now: () => number,
  ): Promise<{ readonly response: HandlerResponse; readonly times: InProcessTimes }> {
    if (this.#handler === undefined) throw new TypeError('the function has no handler');
    const handler = this.#handler;
    const others = new OtherCalls((asked) => {
      const headers = asked.map(({ header }) => header);
      const given = asked.flatMap(({ tensors }) => tensors);
      void answersOf(headers, given, invokeOthers).then(({ answers, tensors }) =>
        others.back(withTensors(answers, tensors)),
      );
    });
    const { context } = others;
    return await spoken(async () => {
      const call = handlerCall(request);
      const startMs = now();
      const inputs = await others.during(() => runPreprocess(handler, call, context));
      checkGiven(inputs, this.#session.inputNames, this.#optionalInputs);
      const inferStartMs = now();
      const outputs = this.#session.runTensors(inputs);
      const inferEndMs = now();
      const response = await others.during(() => runPostprocess(handler, outputs, call, context));
      const postprocessMs = now() - inferEndMs;
      const times = { preprocessMs: inferStartMs - startMs, inferMs: inferEndMs - inferStartMs, postprocessMs };
      return { response, times };
    });
  }

  /** The model alone. Rejects with {@link CpuError}. */
  async run(inputs: readonly Tensor[]): Promise<readonly Tensor[]> {
    return await spoken(async () => this.#session.runTensors(inputs));
  }

  release(): void {
    this.#session.release();
  }
}

/** Reports errors as an instance does. */
async function spoken<Result>(act: () => Promise<Result>): Promise<Result> {
  try {
    return await act();
  } catch (error) {
    const { code, message, status } = failure(error);
    throw new CpuError(code, message, status);
  }
}
