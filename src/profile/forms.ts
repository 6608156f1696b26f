/** Whether a layer comes coded or as it is: one rule for machines that were measured and for those that are estimated. */
import { leastGain } from '../coding/index.ts';
import type { LayerProfile, ProfileLayer } from './layers.ts';

/**
 * A layer comes coded if that spares 5% of its bytes, and if it is decoded no more slowly than the link brings its coded
 * bytes: layers are decoded one after the other, beside the copies of those that follow, so the link stays the limit.
 *
 * @param load milliseconds to bring the coded bytes
 */
export const comesCoded = ({ bytes, load, coded }: Pick<ProfileLayer, 'bytes' | 'load' | 'coded'>): boolean =>
  coded !== undefined && coded.bytes <= (1 - leastGain) * bytes && coded.decode <= load;

/** The layers of a profile whose coded form was measured, and that come as they are all the same. */
export const layersAsTheyAre = ({ layers }: Pick<LayerProfile, 'layers'>): number[] =>
  layers.flatMap((layer, index) => (layer.coded === undefined || comesCoded(layer) ? [] : [index]));
