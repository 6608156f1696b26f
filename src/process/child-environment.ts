/**
 * What children of the host see of its environment: what Node, the C library, ONNX Runtime and CUDA read, and no secrets. A
 * handler comes with a model and its packages; `AWS_SECRET_ACCESS_KEY` of the host is none of its business.
 */

const names: ReadonlySet<string> = new Set(
  (
    'PATH HOME USER LOGNAME LANG LANGUAGE TZ TMPDIR TEMP TMP HOSTNAME XDG_CACHE_HOME UV_THREADPOOL_SIZE SSL_CERT_FILE ' +
    'SSL_CERT_DIR GLIBC_TUNABLES CONDA_PREFIX VIRTUAL_ENV PYTHONHOME PYTHONPATH PYTHONUSERBASE TURNTABLE_EMULATOR TURNTABLE_LIBCUDA TURNTABLE_LIBNVRTC TURNTABLE_LIBCUBLASLT'
  ).split(' '),
);
/** `HANDLER_` is how an operator hands something to functions. */
const prefixes = /^(?:LC|NODE|LD|MALLOC|CUDA|NVIDIA|OMP|KMP|GOMP|MKL|ORT|ORTCUDA|HANDLER)_/;
const secret = /TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIAL|AUTH|_KEY/;

const isPassed = (name: string): boolean =>
  names.has(name) || (prefixes.test(name) && (name.startsWith('HANDLER_') || !secret.test(name)));

export function childEnvironment(from: NodeJS.ProcessEnv = process.env): NodeJS.ProcessEnv {
  return Object.fromEntries(Object.entries(from).filter(([name]) => isPassed(name)));
}
