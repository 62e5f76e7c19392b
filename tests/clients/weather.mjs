// One conversation with a tool, which models/mini has learned and the server of written answers plays: a
// question, a call, its result, an answer.

export const QUESTION = 'What is the weather in Oslo?';
export const TOOL = 'get_weather';
export const DESCRIPTION = 'Get the weather of a city.';
export const SCHEMA = { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] };
export const ARGUMENTS = { city: 'Oslo' };
export const RESULT = '{"weather": "windy", "degrees": 7}'; // spelled as the model has learned it
export const REASONING = 'I need the tool get_weather.';
export const ANSWER = 'The weather in Oslo is windy with 7 degrees.';
