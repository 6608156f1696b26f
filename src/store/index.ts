/** Where functions live, for any number of machines: a folder or a bucket. */
export {
  chunkFile,
  graphFile,
  layoutFile,
  layoutText,
  manifestFile,
  manifestText,
  parseChunkManifest,
  readableFile,
  readableOriginal,
  streamOf,
  type ReadableContent,
} from './chunks.ts';
export { ContentCache, type FetchFile, type NamedContent } from './content-cache.ts';
export { decodeName, encodeName } from './entry-names.ts';
export { fetchContent, fetchText, type ContentSource, type WantedContent } from './fetch-content.ts';
export { FolderStore } from './folder-store.ts';
export { openStore } from './open-store.ts';
export {
  ChangedElsewhere,
  EntryUnreadable,
  StoreAway,
  type EntryBefore,
  type EntryBody,
  type Store,
  type StoredEntry,
  type Tag,
} from './store.ts';
