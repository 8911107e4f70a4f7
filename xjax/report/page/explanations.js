// Shades the words of the label whose button is clicked.
document.addEventListener('click', (event) => {
  const button = event.target.closest('article button');
  if (!button) return;
  const article = button.closest('article');
  for (const other of article.querySelectorAll('button'))
    other.setAttribute('aria-pressed', String(other === button));
  article.querySelector('.why').textContent = button.dataset.why;
  const words = article.querySelectorAll('.word');
  for (const word of words) {
    word.className = 'word';
    word.removeAttribute('title');
  }
  for (const part of button.dataset.words.split(' ').filter(Boolean)) {
    const [at, names, amount] = part.split(':');
    words[at].className = 'word ' + names.replace('+', ' ');
    words[at].title = amount + article.dataset.unit;
  }
});
