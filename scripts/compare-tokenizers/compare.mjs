// Speed of `millrace bench tokenizer` beside the tokenizers of the npm registry: the same texts, cut into the same
// calls, one thread each, in turn. MB are 10^6 bytes of UTF-8; times are processor time, the best of all rounds.
//
//   npm ci && node compare.mjs MILLRACE TOKENIZER_DIR [ROUNDS]
//
// TOKENIZER_DIR holds the released tokenizer.json (scripts/fetch-tokenizer). @huggingface/tokenizers runs the same
// vocabulary; tiktoken (WebAssembly) and gpt-tokenizer run their own, o200k, as they cannot run others.

import { spawnSync } from 'node:child_process';
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

import { Tokenizer } from '@huggingface/tokenizers';
import { encode as gptEncode } from 'gpt-tokenizer/encoding/o200k_base';
import { get_encoding as getEncoding } from 'tiktoken';

const kCallBytes = 4096;
const kTextBytes = 400_000;

const [millrace, tokenizerDir, rounds = '5'] = process.argv.slice(2);
if (!tokenizerDir) {
  console.error('usage: node compare.mjs MILLRACE TOKENIZER_DIR [ROUNDS]');
  process.exit(2);
}
const top = join(dirname(fileURLToPath(import.meta.url)), '../..');

function filesBelow(dir, extension) {
  return readdirSync(join(top, dir), { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile() && entry.name.endsWith(extension))
    .map((entry) => join(entry.parentPath ?? entry.path, entry.name))
    .sort();
}

function filled(parts) {
  const whole = parts.join('');
  let text = '';
  while (Buffer.byteLength(text) < kTextBytes) text += whole.slice(0, kTextBytes - text.length);
  return text;
}

// Names of countries, languages, scripts and currencies, as sentences: Chinese that every machine has.
function chinese() {
  const words = [];
  const letters = [...'ABCDEFGHIJKLMNOPQRSTUVWXYZ'];
  for (const type of ['region', 'language', 'currency']) {
    const names = new Intl.DisplayNames(['zh'], { type, fallback: 'none' });
    const codes = letters.flatMap((a) => letters.flatMap((b) => (type === 'currency' ? letters.map((c) => a + b + c) : [a + b])));
    for (const code of codes) {
      const name = names.of(type === 'language' ? code.toLowerCase() : code);
      if (name && /^\p{Script=Han}+$/u.test(name)) words.push(name);
    }
  }
  let state = 1;
  const next = (n) => (state = (Math.imul(state, 48271) >>> 0) % 0x7fffffff) % n;
  return filled(Array.from({ length: 40_000 }, () => words[next(words.length)] + ['', '', '', '，', '的', '。\n'][next(6)]));
}

const texts = {
  english: filled([...filesBelow('docs', '.md'), join(top, 'README.md')].map((file) => readFileSync(file, 'utf8'))),
  chinese: chinese(),
  code: filled(filesBelow('src', '.cc').map((file) => readFileSync(file, 'utf8'))),
};

// Pieces of about kCallBytes that end between characters.
function calls(text) {
  const pieces = [];
  let piece = '';
  let bytes = 0;
  for (const character of text) {
    piece += character;
    bytes += Buffer.byteLength(character);
    if (bytes >= kCallBytes) {
      pieces.push(piece);
      piece = '';
      bytes = 0;
    }
  }
  return piece ? [...pieces, piece] : pieces;
}

const json = JSON.parse(readFileSync(join(tokenizerDir, 'tokenizer.json'), 'utf8'));
const huggingFace = new Tokenizer(json, {});
const o200k = getEncoding('o200k_base');
const others = {
  '@huggingface/tokenizers': (text) => huggingFace.encode(text, { add_special_tokens: false }).ids.length,
  'gpt-tokenizer': (text) => gptEncode(text).length,
  tiktoken: (text) => o200k.encode_ordinary(text).length,
};

function secondsOf(encode, pieces) {
  const start = process.cpuUsage();
  for (const piece of pieces) encode(piece);
  const { user, system } = process.cpuUsage(start);
  return (user + system) * 1e-6;
}

function secondsOfMillrace(file, callBytes) {
  const run = spawnSync(
    millrace,
    ['bench', 'tokenizer', tokenizerDir, file, '--seconds', '0.2', '--call-bytes', `${callBytes}`, '--json'],
    { encoding: 'utf8' },
  );
  if (run.status !== 0) throw new Error(run.stderr);
  return JSON.parse(run.stdout)[0].seconds;
}

const work = mkdtempSync(join(tmpdir(), 'compare-tokenizers-'));
try {
  console.log(`${'text'.padEnd(9)}${'tokenizer'.padEnd(26)}${'MB/s'.padStart(8)}${'millrace over it'.padStart(18)}`);
  for (const [name, text] of Object.entries(texts)) {
    const file = join(work, `${name}.txt`);
    writeFileSync(file, text);
    const pieces = calls(text);
    const best = {};
    const keepBest = (who, seconds) => (best[who] = Math.min(best[who] ?? Infinity, seconds));
    for (let round = 0; round < Number(rounds); ++round) {
      keepBest('millrace', secondsOfMillrace(file, kCallBytes));
      for (const [who, encode] of Object.entries(others)) keepBest(who, secondsOf(encode, pieces));
    }
    const speed = (who) => (Buffer.byteLength(text) / best[who]) * 1e-6;
    for (const who of Object.keys(best)) {
      const ratio = who === 'millrace' ? '' : (speed('millrace') / speed(who)).toFixed(1);
      console.log(`${name.padEnd(9)}${who.padEnd(26)}${speed(who).toFixed(2).padStart(8)}${ratio.padStart(18)}`);
    }
  }
} finally {
  rmSync(work, { recursive: true, force: true });
}
