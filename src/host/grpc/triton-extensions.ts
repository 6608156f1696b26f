/** Triton's extensions for the server itself: log and trace settings, and memory shared by client and server. */
import type { UntypedServiceImplementation } from '@grpc/grpc-js';
import { versionNamed } from '../http/host-context.ts';
import { refuseSharedMemory, refuseTraceChange, traceOff } from '../http/triton-routes.ts';
import { asking, unary, type GrpcContext } from './call.ts';

interface Settings<Value> {
  readonly settings?: Readonly<Record<string, Value>>;
}

interface LogValue {
  readonly parameter_choice?: 'bool_param' | 'uint32_param' | 'string_param';
  readonly bool_param?: boolean;
  readonly uint32_param?: number;
  readonly string_param?: string;
}

type TraceSettingRequest = Settings<{ readonly value?: readonly string[] }> & { readonly model_name?: string };

export function tritonExtensions(context: GrpcContext): UntypedServiceImplementation {
  const { logging } = context;
  return {
    LogSettings: unary(context, 'LogSettings', 'read', async ({ settings = {} }: Settings<LogValue>, call) => {
      const changes = Object.entries(settings).map(([key, value]) => [key, plainValue(value)] as const);
      if (changes.length > 0) {
        context.access.authorize('publish', asking(context, call));
        logging.change(Object.fromEntries(changes));
      }
      return { settings: mapped(logging.settings(), logValue) };
    }),
    TraceSetting: unary(context, 'TraceSetting', 'read', async (request: TraceSettingRequest, call) => {
      const { settings = {}, model_name: name = '' } = request;
      if (name !== '') versionNamed(context, name, undefined);
      if (Object.keys(settings).length > 0) {
        context.access.authorize('publish', asking(context, call));
        refuseTraceChange(settings['trace_level']?.value);
      }
      return { settings: mapped(traceOff, (value) => ({ value: Array.isArray(value) ? value : [value] })) };
    }),
    ...sharedMemory(context, 'System'),
    ...sharedMemory(context, 'Cuda'),
  };
}

function mapped<Value>(settings: Readonly<Record<string, Value>>, make: (value: Value) => object): object {
  return Object.fromEntries(Object.entries(settings).map(([key, value]) => [key, make(value)]));
}

const plainValue = ({ parameter_choice: choice, ...values }: LogValue): unknown =>
  choice === undefined ? undefined : values[choice];

function logValue(value: boolean | number | string): LogValue {
  if (typeof value === 'boolean') return { bool_param: value };
  return typeof value === 'number' ? { uint32_param: value } : { string_param: value };
}

function sharedMemory(context: GrpcContext, kind: 'System' | 'Cuda'): UntypedServiceImplementation {
  const named = (method: string, work: (region: string) => object): UntypedServiceImplementation => {
    const name = `${kind}SharedMemory${method}`;
    return {
      [name]: unary(context, name, 'read', ({ name: region = '' }: { readonly name?: string }) => work(region)),
    };
  };
  return {
    ...named('Status', () => ({ regions: {} })),
    // Triton's clients unregister all regions before they begin.
    ...named('Unregister', () => ({})),
    ...named('Register', refuseSharedMemory),
  };
}
