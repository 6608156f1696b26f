/** The part of node-forge that `turntable key --tls` uses. */
declare module 'node-forge' {
  interface Extension {
    readonly name: string;
    readonly [field: string]: unknown;
  }
  interface Attribute {
    readonly name: string;
    readonly value: string;
  }
  interface PublicKey {
    readonly n: unknown;
  }
  interface PrivateKey {
    readonly d: unknown;
  }
  export interface Certificate {
    publicKey: PublicKey;
    serialNumber: string;
    readonly validity: { notBefore: Date; notAfter: Date };
    readonly subject: { readonly attributes: Attribute[] };
    setSubject(attributes: readonly Attribute[]): void;
    setIssuer(attributes: readonly Attribute[]): void;
    setExtensions(extensions: readonly Extension[]): void;
    sign(key: PrivateKey, digest: unknown): void;
  }
  const forge: {
    readonly pki: {
      createCertificate(): Certificate;
      publicKeyFromPem(pem: string): PublicKey;
      privateKeyFromPem(pem: string): PrivateKey;
      certificateFromPem(pem: string): Certificate;
      certificateToPem(certificate: Certificate): string;
    };
    readonly md: { readonly sha256: { create(): unknown } };
  };
  export default forge;
}
