/** `mmesh.ModelMesh`: the ModelMesh calls that this host has under another name. */
import type { UntypedServiceImplementation } from '@grpc/grpc-js';
import { refuseWhileDraining } from '../access.ts';
import { HostError } from '../errors.ts';
import { versionNamed } from '../http/host-context.ts';
import type { FunctionVersion } from '../types.ts';
import { stateShown } from '../versions.ts';
import { modelId, unary, type GrpcContext } from './call.ts';

type ModelStatus = 'NOT_FOUND' | 'NOT_LOADED' | 'LOADING' | 'LOADED' | 'LOADING_FAILED';

interface ModelStatusInfo {
  readonly status: ModelStatus;
  readonly errors: readonly string[];
}

interface OfModel {
  readonly modelId?: string;
}

interface OfVirtualModel {
  readonly vModelId?: string;
}

export function modelMeshService(context: GrpcContext): UntypedServiceImplementation {
  const find = (id: string): FunctionVersion | undefined => {
    const { name, version } = modelId(id);
    return context.store.find(name, version);
  };
  return {
    getModelStatus: unary(context, 'getModelStatus', 'read', ({ modelId: id = '' }: OfModel) =>
      statusOf(context, find(id), false),
    ),
    ensureLoaded: unary(context, 'ensureLoaded', 'publish', async (request: OfModel & { sync?: boolean }) => {
      refuseWhileDraining(context);
      const { name, version: number } = modelId(request.modelId ?? '');
      const version = await context.invoker.ready(versionNamed(context, name, number));
      const loading = context.invoker.load(version);
      if (request.sync === true) await loading;
      // A failure shows in the status that the next call returns.
      else loading.catch(() => undefined);
      return statusOf(context, version, request.sync !== true);
    }),
    unregisterModel: unary(context, 'unregisterModel', 'publish', async ({ modelId: id = '' }: OfModel) => {
      refuseWhileDraining(context);
      const { name, version } = modelId(id);
      if (find(id) !== undefined) await context.store.remove(name, version);
      return {};
    }),
    getVModelStatus: unary(context, 'getVModelStatus', 'read', ({ vModelId: id = '' }: OfVirtualModel) => {
      const version = context.store.find(id);
      if (version === undefined) return { status: 'NOT_FOUND', activeModelStatus: { status: 'NOT_FOUND', errors: [] } };
      const activeModelStatus = statusOf(context, version, false);
      return { status: 'DEFINED', activeModelId: version.key, targetModelId: version.key, activeModelStatus };
    }),
    registerModel: unary(context, 'registerModel', 'read', refuse),
    setVModel: unary(context, 'setVModel', 'read', refuse),
    deleteVModel: unary(context, 'deleteVModel', 'read', refuse),
  };
}

function refuse(): never {
  throw new HostError(
    'method-not-allowed',
    'functions are published with their model over HTTP: PUT /functions/{name}; the newest version of a ' +
      'function is what a vmodel was',
  );
}

function statusOf(context: GrpcContext, version: FunctionVersion | undefined, isLoading: boolean): ModelStatusInfo {
  if (version === undefined) return { status: 'NOT_FOUND', errors: [] };
  const state = stateShown(version, context.invoker.outOfService);
  switch (state.status) {
    case 'unavailable':
      return { status: 'LOADING_FAILED', errors: [state.reason] };
    case 'validating':
      return { status: 'LOADING', errors: [] };
    case 'elsewhere':
      return { status: 'NOT_LOADED', errors: [] };
    case 'ready': {
      const instances = context.pools.state(version.key)?.instances ?? [];
      const isLoaded = instances.some((each) => each.state !== 'loading' && each.holdsModel !== false);
      if (isLoaded) return { status: 'LOADED', errors: [] };
      return { status: isLoading || instances.length > 0 ? 'LOADING' : 'NOT_LOADED', errors: [] };
    }
  }
}
