// Speed of `millrace bench tokenizer` beside the tokenizers of the npm registry: the same texts, cut into the same
// calls, one thread each, in turn. MB are 10^6 bytes of UTF-8; times are processor time. Each round has a text of its
// own that nobody has seen before, as prompts are: a tokenizer that remembers the words of earlier calls gains by those
// that recur, not by reading the same again. The median of the rounds' ratios counts.
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
const kTextBytes = 60_000;  // of one round

const [millrace, tokenizerDir, roundsText = '5'] = process.argv.slice(2);
const rounds = Number(roundsText);
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

// One text for each round out of one long one.
function texts(whole) {
  const characters = [...whole];
  const each = Math.min(kTextBytes, Math.floor(characters.length / rounds));
  return Array.from({ length: rounds }, (_, round) => characters.slice(round * each, (round + 1) * each).join(''));
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
  return Array.from({ length: 20_000 * rounds }, () => words[next(words.length)] + ['', '', '', '，', '的', '。\n'][next(6)]).join('');
}

const read = (files) => files.map((file) => readFileSync(file, 'utf8')).join('');
const kinds = {
  english: texts(read([...filesBelow('docs', '.md'), join(top, 'README.md')])),
  chinese: texts(chinese()),
  code: texts(read(filesBelow('src', '.cc'))),
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

const median = (values) => [...values].sort((a, b) => a - b)[Math.floor(values.length / 2)];

const work = mkdtempSync(join(tmpdir(), 'compare-tokenizers-'));
try {
  console.log(`${'text'.padEnd(9)}${'tokenizer'.padEnd(26)}${'MB/s'.padStart(8)}${'millrace over it'.padStart(18)}`);
  for (const [name, parts] of Object.entries(kinds)) {
    const speeds = {};
    parts.forEach((text, round) => {
      const file = join(work, `${name}-${round}.txt`);
      writeFileSync(file, text);
      const pieces = calls(text);
      const note = (who, seconds) => (speeds[who] ??= []).push((Buffer.byteLength(text) / seconds) * 1e-6);
      note('millrace', secondsOfMillrace(file, kCallBytes));
      for (const [who, encode] of Object.entries(others)) note(who, secondsOf(encode, pieces));
    });
    for (const who of Object.keys(speeds)) {
      const ratio = who === 'millrace' ? '' : median(speeds.millrace.map((s, i) => s / speeds[who][i])).toFixed(1);
      console.log(`${name.padEnd(9)}${who.padEnd(26)}${median(speeds[who]).toFixed(2).padStart(8)}${ratio.padStart(18)}`);
    }
  }
} finally {
  rmSync(work, { recursive: true, force: true });
}
