/** Architectures that can be built at any size, with seeded weights. */
import type { Architecture, BuiltModel } from './architecture.ts';
import { bertBase, bertLarge, robertaBase, robertaLarge } from './bert.ts';
import { gpt2, gpt2Medium } from './gpt2.ts';
import { inceptionV3 } from './inception.ts';
import { mlp } from './mlp.ts';
import { mobilenetV2 } from './mobilenet.ts';
import { gru, lstm } from './recurrent.ts';
import { resnet101, resnet50 } from './resnet.ts';
import { ArchitectureError, type SettingValue } from './settings.ts';
import { vgg16 } from './vgg.ts';

export type { Architecture, BuiltModel } from './architecture.ts';
export { allowedValues, ArchitectureError, type SettingSpec, type SettingValue } from './settings.ts';

export const architectures: readonly Architecture[] = [
  bertBase,
  bertLarge,
  robertaBase,
  robertaLarge,
  gpt2,
  gpt2Medium,
  resnet50,
  resnet101,
  vgg16,
  inceptionV3,
  mobilenetV2,
  lstm,
  gru,
  mlp,
];

/**
 * Builds an architecture by name. Weights are made only when they are written.
 * @throws ArchitectureError naming an unknown architecture or setting, or a value that is not allowed
 */
export function buildArchitecture(
  name: string,
  settings: Readonly<Record<string, SettingValue>> = {},
  seed = 0,
): BuiltModel {
  const architecture = architectures.find((each) => each.name === name);
  if (architecture === undefined) {
    const known = architectures.map((each) => each.name).join(', ');
    throw new ArchitectureError(`there is no architecture '${name}'; there are ${known}`);
  }
  return architecture.build(settings, seed);
}
