// The packages' loops on what models/mini really says.

import './loops.mjs';
