const form = document.querySelector('form');
const result = document.getElementById('result');
form.addEventListener('submit', async (event) => {
  event.preventDefault();
  const text = {id: 'your text', text: form.text.value};
  const asked = {documents: [text], k: Number(form.k.value)};
  if (form.threshold.value) asked.threshold = Number(form.threshold.value);
  result.setAttribute('aria-busy', 'true');
  try {
    const answer = await fetch('shaded', {method: 'POST',
      headers: {'content-type': 'application/json'},
      body: JSON.stringify(asked)});
    const content = await answer.json();
    if (!answer.ok) throw new Error(content.error);
    result.innerHTML = content.html[0];
  } catch (error) {
    const line = document.createElement('p');
    line.className = 'error';
    line.textContent = error.message;
    result.replaceChildren(line);
  }
  result.removeAttribute('aria-busy');
});
form.text.addEventListener('keydown', (event) => {
  if (event.key === 'Enter' && (event.ctrlKey || event.metaKey))
    form.requestSubmit();
});
