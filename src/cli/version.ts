import { Command, type AnyCommand } from './commander.ts';
import { dependencyVersion, packageVersion } from './package.ts';

export function versionCommand(): AnyCommand {
  return new Command('version')
    .description('Print the versions of Turntable, Node and ONNX Runtime.')
    .option('--json', 'print JSON')
    .action(({ json }) => {
      const versions = {
        turntable: packageVersion(),
        node: process.versions.node,
        onnxruntime: dependencyVersion('onnxruntime-node') ?? null,
      };
      const { turntable, node, onnxruntime } = versions;
      const text = `turntable ${turntable} (Node ${node}, onnxruntime-node ${onnxruntime ?? 'missing'})`;
      console.log(json === true ? JSON.stringify(versions) : text);
    });
}
