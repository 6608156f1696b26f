#!/usr/bin/env bash
# Installs the packed tarball in a root that holds Node, npm, a shell and the C libraries, and nothing else: publishes, upgrades,
# looks for the data, uninstalls. By hand, as root: `npm run package -- /tmp && test/install/in-empty-root.sh /tmp/turntable-0.1.0.tgz`.
set -eu
tarball=$(realpath "$1")
root=$(mktemp -d -t turntable-root-XXXXXX)
trap 'rm -rf "$root"' EXIT

mkdir -p "$root"/{bin,usr/bin,usr/lib,usr/lib64,etc,tmp,proc,dev,root,package}
ln -s usr/lib "$root/lib"
ln -s usr/lib64 "$root/lib64"
programs=$(type -P node dash ls cat sleep mkdir rm tar gzip sed uname grep kill env)
for program in $programs; do cp -L "$program" "$root/usr/bin/"; done
ln -s dash "$root/usr/bin/sh"
ln -s ../usr/bin/dash "$root/bin/sh"
ln -sf ../usr/bin/env "$root/bin/env"
cp -r "$(dirname "$(dirname "$(realpath "$(type -P npm)")")")" "$root/usr/lib/npm"
# What the programs and ONNX Runtime link to, and what looks up names.
mkdir "$root/unpacked"; tar -xzf "$tarball" -C "$root/unpacked"
for library in $( (for object in $programs "$root"/unpacked/package/node_modules/onnxruntime-node/bin/napi-v6/linux/x64/*; do
  ldd "$object" 2>/dev/null; done) | grep -oE '/[^ ]+\.so[^ ]*' | sort -u) /lib/x86_64-linux-gnu/libnss_{dns,files}.so.2; do
  [[ $library == "$root"* ]] && continue
  mkdir -p "$root/usr$(dirname "${library#/usr}")"
  cp -L "$library" "$root/usr${library#/usr}"
done
# The same package as the next version.
cp "$tarball" "$root/package/first.tgz"
sed -i 's/"version": "[^"]*"/"version": "0.99.0"/' "$root/unpacked/package/package.json"
tar -czf "$root/package/second.tgz" -C "$root/unpacked" package
rm -rf "$root/unpacked"
cp -L /etc/resolv.conf /etc/hosts "$root/etc/" 2>/dev/null || true
echo 'root:x:0:0:root:/root:/bin/sh' >"$root/etc/passwd"
cafile=$(npm config get cafile 2>/dev/null); [[ -f $cafile ]] && cp -L "$cafile" "$root/etc/ca.crt"

cat >"$root/package/steps.sh" <<'STEPS'
set -eu
export HOME=/root PATH=/usr/bin:/opt/bin npm_config_prefix=/opt npm_config_update_notifier=false
[ -f /etc/ca.crt ] && export NODE_EXTRA_CA_CERTS=/etc/ca.crt npm_config_cafile=/etc/ca.crt
npm() { node /usr/lib/npm/bin/npm-cli.js "$@"; }
say() { echo "==> $*"; }
start() {
  turntable serve --log-level error >/tmp/host.log 2>&1 & host=$!
  until grep -q 'is ready at' /tmp/host.log; do kill -0 $host || { cat /tmp/host.log; exit 1; }; sleep 0.2; done
}
stop() { kill $host; wait $host; }
has() { grep -q "$1" || { echo "FAILED: no $1"; exit 1; }; }

say "node $(node --version), npm $(npm --version)"
npm install --global /package/first.tgz
say 'install: a question, and a publication with an SLO'
start
turntable call language-id --data 'Où est la bibliothèque ?' | has '"fr"'
turntable publish mine /opt/lib/node_modules/turntable/functions/digit-reader/model.onnx --slo 70ms
turntable ps | grep mine | has '70 ms'
stop
say 'upgrade'
npm install --global /package/second.tgz
turntable --version | has 0.99.0
start
turntable ps | grep mine | has '70 ms'
turntable call language-id --data 'Wo ist die Bibliothek?' | has '"de"'
stop
say 'uninstall: the data stays, the package is gone'
npm uninstall --global turntable
ls "${XDG_DATA_HOME:-$HOME/.local/share}/turntable"
! ls /opt/lib/node_modules/turntable 2>/dev/null
say 'passed'
STEPS

unshare --mount --pid --fork --kill-child bash -eu -c "
  mount -t proc proc '$root/proc'
  mount -t tmpfs tmpfs '$root/dev'
  for node in null zero urandom random; do touch '$root'/dev/\$node; mount --bind /dev/\$node '$root'/dev/\$node; done
  exec chroot '$root' /bin/sh /package/steps.sh"
