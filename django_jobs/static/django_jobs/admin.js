'use strict';
// A second click on a button of an act asks for nothing; the server would refuse it as well.
document.addEventListener('submit', function(event) {
    if (!event.target.matches('form.dj-act')) {
        return;
    }
    if (event.target.dataset.sent) {
        event.preventDefault();
    }
    event.target.dataset.sent = 'yes';
});
// A page that comes back from the browser's memory can be sent anew.
window.addEventListener('pageshow', function() {
    document.querySelectorAll('form.dj-act').forEach(function(form) {
        delete form.dataset.sent;
    });
});
